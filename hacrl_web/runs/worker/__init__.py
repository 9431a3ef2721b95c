"""Claims queued runs, and starts, watches and ends their trainers. It knows no page."""
