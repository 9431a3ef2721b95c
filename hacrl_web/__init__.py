"""The Django project: pages, API, worker and command line. It imports no machine-learning library."""
