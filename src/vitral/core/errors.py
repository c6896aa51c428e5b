"""The errors a user may meet: one clear line each, with the exit code the command line gives."""


class VitralError(Exception):
    """An error meant for the user: its text is one line that says what, where, and what to do."""

    exit_code = 2


class UsageError(VitralError, ValueError):
    """Something given cannot be used: a value, a file, a name, a combination."""

    exit_code = 2


class TrainingStopped(VitralError, RuntimeError):
    """Training met a number that is not finite and stopped before the step."""

    exit_code = 3


class StorageError(VitralError, OSError):
    """The disk did not take, or did not give back, what it should."""

    exit_code = 4
