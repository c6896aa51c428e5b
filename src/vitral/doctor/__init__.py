"""Checks of a machine, a run and a study, and repairs."""
