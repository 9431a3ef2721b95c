"""Whether hosts, models and the Hub can carry a run, asked before it is queued. It knows nothing of requests."""
