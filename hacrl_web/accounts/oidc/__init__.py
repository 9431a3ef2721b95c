"""Sign-in at an OpenID Connect provider, with groups to roles. Nothing imports it: a line of settings leaves it out."""
