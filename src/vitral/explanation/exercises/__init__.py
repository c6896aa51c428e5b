"""Exercises: small computations to do by hand, as sheets with blanks and their keys."""
