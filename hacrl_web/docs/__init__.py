"""The pages of `docs/`, served at `/docs`, and the reference that is generated from the settings. It knows no table."""
