"""Short processes for the web: what a model is, whether two fit, what a trained agent answers. They train nothing."""
