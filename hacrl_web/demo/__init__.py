"""`./hacrl demo`: its launch, its outcome, and its part of Home. Nothing imports it."""
