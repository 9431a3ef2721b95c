"""The alert rules: what each measures, its limits, its advice and remedy. It knows no table and no page."""
