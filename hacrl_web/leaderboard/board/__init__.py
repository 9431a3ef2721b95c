"""Which runs a board has, its columns, and its numbers. It knows no format."""
