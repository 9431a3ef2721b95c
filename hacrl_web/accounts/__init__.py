"""Users, projects with roles, tokens, sign-in and the audit log; it knows nothing that people register or run."""
