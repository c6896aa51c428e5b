"""What every room leans on: errors, strict configs, keyed random streams, and the names of things."""
