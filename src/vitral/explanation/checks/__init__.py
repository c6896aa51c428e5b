"""Checks of worked examples: a verdict on each claimed number, a diagnosis of what is wrong, and the corrected file."""
