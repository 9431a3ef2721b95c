"""A feature as somebody would add it: one folder with a table, a page, an API operation and a command."""
