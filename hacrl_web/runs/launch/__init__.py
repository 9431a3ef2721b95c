"""From a request to queued runs: plan, checks, cost, drafts, the form. A run is a sweep of one."""
