"""Shared foundations: errors, strict configurations, keyed random streams, names, taps, devices."""
