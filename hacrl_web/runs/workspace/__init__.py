"""The list of runs: filters, columns of any setting, groups, saved views."""
