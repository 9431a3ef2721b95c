"""Claims queued runs, and starts, watches and ends their trainers; the queue, the hosts. It knows no page of a run."""
