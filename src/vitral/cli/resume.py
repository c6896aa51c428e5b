"""vitral resume: a run continued."""

from vitral.cli.options import RunArgument
from vitral.cli.train import finish


def resume(run: RunArgument) -> None:
    """Continue a stopped run from its last checkpoint.

    The result is the same as if the run had never stopped.
    """
    from vitral.cli.progress import live_reporter
    from vitral.training import resume

    with live_reporter() as report:
        resume(run, callback=report)
    finish(run)
