"""What `vitral.NAME` and `vitral NAME` take, default to and say; nothing heavy is imported before a call."""
