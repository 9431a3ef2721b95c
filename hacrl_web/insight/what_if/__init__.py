"""Other settings applied to recorded steps. It trains nothing and changes no record."""
