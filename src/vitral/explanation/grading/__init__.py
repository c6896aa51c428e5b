"""Grading: students' sheets checked against a key, and points by a stated rule."""
