"""Questions that reasoning-gym's generators make, and their scores; the package is installed on demand."""
