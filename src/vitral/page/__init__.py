"""The page: a run's model with its instruments, in one file or behind a small server."""
