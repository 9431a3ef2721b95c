"""One run: its page and header, its controls, labels, and its part of the API. It knows no launch."""
