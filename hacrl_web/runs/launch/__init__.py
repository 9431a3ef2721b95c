"""From a request to queued runs: rows, plan, checks, cost, drafts, the form, the API. A run is a sweep of one."""
