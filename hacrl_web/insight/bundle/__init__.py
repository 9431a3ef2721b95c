"""A run as one file: written, and imported from another installation."""
