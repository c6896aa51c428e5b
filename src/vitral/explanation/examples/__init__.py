"""Worked examples: the file format, its reader, parameter tables, and exercises."""
