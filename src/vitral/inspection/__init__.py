"""Measurements of a trained model, as plain data; the parts of each are in its module."""
