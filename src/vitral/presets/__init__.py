"""Configurations by name, one TOML file each: `description`, `vocabulary` to count with, and `[run]`."""
