"""What a user may see and do in a project: the one rule of every list, page, socket and export."""
