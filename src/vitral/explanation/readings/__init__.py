"""Readings of trees: formulas and arithmetic, gradients, other layouts."""
