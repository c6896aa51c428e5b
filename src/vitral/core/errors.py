"""Errors for users: one clear line each, with the exit code of the command line."""


class VitralError(Exception):
    """Base class of errors for users: one line that says what is wrong, where, and what to do."""

    exit_code = 2


class UsageError(VitralError, ValueError):
    """Invalid input: a value, a file, a name or a combination of options."""

    exit_code = 2


class TrainingStopped(VitralError, RuntimeError):
    """Training stopped because a number is not finite."""

    exit_code = 3


class StorageError(VitralError, OSError):
    """A file could not be written or read."""

    exit_code = 4
