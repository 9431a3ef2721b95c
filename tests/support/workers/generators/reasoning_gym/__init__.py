"""A stand-in of reasoning-gym: its interface as far as the product uses it, and four generators of its names."""
