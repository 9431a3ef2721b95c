"""New events to browsers: one reader per process, a cursor for each socket. It stores nothing."""
