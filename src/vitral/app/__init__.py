"""What `vitral.NAME` and `vitral NAME` are, the command line made of it, and what a terminal or notebook needs."""
