"""Messages over Redis: a run has news, a queued run waits for a worker.

They are hints and never wait for Redis; the package knows no table, for everything that must not be lost is a row.
"""
