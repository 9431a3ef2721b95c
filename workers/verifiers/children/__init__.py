"""Child processes that can be killed, by lines of JSON. They know no kind of verifier."""
