"""Quantities whose formula or arithmetic is written by hand: positions, and choices of the next token."""
