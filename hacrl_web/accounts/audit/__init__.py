"""Who changed what: the actor of a change, and the log that models write when they are saved. It knows no table."""
