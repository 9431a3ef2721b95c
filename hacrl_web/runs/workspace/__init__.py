"""The list of runs: filters, columns of any setting, groups, saved views; Home, and the search by name."""
