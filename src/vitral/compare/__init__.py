"""Runs side by side: what differs, and whether their losses do."""
