"""The `hacrl` command and the Python client. It knows addresses of the API alone, neither Django nor the trainer."""
