"""Language models: registered after an inspection, checked again, deleted. It knows no group."""
