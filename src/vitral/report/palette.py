"""The four colours that figures and pages share, in a module without matplotlib, which pages do not need."""

INK = "#1b1f24"
MUTED = "#59636e"
GRID = "#d8dde3"
PAPER = "#ffffff"
"""Foreground, secondary text, grid and background; a page may map them to its own (dark) colours."""
