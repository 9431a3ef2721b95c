"""`./hacrl demo`: its launch, its outcome, and its part of Home. Of the apps none imports it."""
