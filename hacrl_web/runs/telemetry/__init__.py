"""Events of a spool to rows, each once, and series read from them. It knows no socket and no page."""
