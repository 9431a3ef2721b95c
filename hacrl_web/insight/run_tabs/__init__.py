"""The tabs Config, Events and System of a run, and its settings as files. They change nothing."""
