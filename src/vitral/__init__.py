"""Vitral: a small-Transformer laboratory with glass walls."""
