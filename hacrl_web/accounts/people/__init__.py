"""Projects with members and invitations, the people of an installation, the page of the audit log."""
