"""The command line: parses, prints, exits. One file for each command; everything heavy is imported inside them."""

import functools
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from vitral.cli import (
    bundle,
    check,
    compare,
    continuation,
    corpus,
    count,
    demo,
    doctor,
    evaluate,
    exercise,
    explain,
    export,
    forecast,
    generate,
    grade,
    import_model,
    resume,
    session,
    study,
    train,
)
from vitral.cli import inspect as inspect_command
from vitral.cli import list as list_command
from vitral.cli import open as open_command
from vitral.cli.complaints import complain, complain_of, show_traceback
from vitral.cli.help import Command, Group, LanguageOption, refusal, speaking, with_language
from vitral.cli.options import setting_meant
from vitral.cli.parts import with_parts
from vitral.cli.ranks import be_silent, leave
from vitral.cli.streams import OutputLost, guard, settle
from vitral.core import interrupts
from vitral.core.errors import UsageError, VitralError
from vitral.core.language import _
from vitral.core.launching import end_with_parent, launched

ALLOCATIONS = 50_000
"""Objects after which Python looks for unreachable cycles, not 700: imports make very many, and no garbage."""

app = typer.Typer(
    name="vitral",
    cls=Group,
    help="Vitral: a small-Transformer laboratory with glass walls.\n\nTrain a language model on any text, then sample "
    "it, measure it, take it apart and explain it. Start with: vitral demo",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    """One line, without the seconds that an import of PyTorch takes."""
    if is_asked:
        from vitral.cli.screen import say
        from vitral.core.versions import versions

        say(versions())
        raise typer.Exit


@app.callback()
def _without_command(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the versions of Vitral, Python, PyTorch."
        ),
    ] = False,
    lang: LanguageOption = None,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


class _Carried(Exception):
    """Carries an error through the argument parser, which would turn it into an exit code without a line."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _carrying(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def called(*given: Any, **options: Any) -> None:
        try:
            command(*given, **options)
        except (KeyboardInterrupt, ConnectionError, EOFError) as error:
            raise _Carried(error) from None

    return called


NAMES = {
    "continue_run": "continue",
    "import_model": "import",
    "open_page": "open",
}
"""The names of commands whose functions have others."""
WITHOUT_A_MODEL = (demo.demo, exercise.exercise, check.check, grade.grade)
for command in (
    demo.demo,
    corpus.corpus,
    count.count,
    forecast.forecast,
    train.train,
    resume.resume,
    continuation.continue_run,
    evaluate.evaluate,
    compare.compare,
    generate.generate,
    inspect_command.inspect,
    explain.explain,
    exercise.exercise,
    check.check,
    grade.grade,
    study.study,
    bundle.bundle,
    open_command.open_page,
    import_model.import_model,
    export.export,
    doctor.doctor,
):
    told = _carrying(command) if command in WITHOUT_A_MODEL else with_parts(_carrying(command))
    app.command(NAMES.get(command.__name__), cls=Command)(with_language(told))
app.command("list", cls=Command)(with_language(_carrying(list_command.list_names)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; an error is one line on stderr and an exit code.

    0 success, 1 a check found something wrong, 2 invalid input or too little memory, 3 a number in training was not
    finite, 4 reading or writing failed (a full disk, a closed standard output), 70 a fault of Vitral, 130 interrupted
    before there was anything to save. With VITRAL_TRACEBACK=1 an error also shows where it comes from.
    """
    gc.set_threshold(ALLOCATIONS)
    guard()
    threading.excepthook = _thread_failed
    _ignore_matplotlib_settings()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else it reads about every installed package
    if launched():
        end_with_parent(signal.SIGTERM)
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # else PyTorch tells the user of lost connections too
    else:  # ranks end together, by their launcher
        interrupts.watch(complain)
    given = sys.argv[1:] if arguments is None else [*arguments]
    with speaking(given):
        code = _run(given)
        settle()
    leave(code)


def _ignore_matplotlib_settings() -> None:
    """Figures need no settings: not the user's, nor those in the current folder, which may be a stranger's."""
    os.environ |= {"MPLBACKEND": "agg", "MATPLOTLIBRC": os.devnull}
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it also warns if it cannot keep its list of fonts


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    """TensorBoard's writer hands its error to the next call; the count of n-grams hands it to its result."""
    if failed.exc_value is not None:
        show_traceback(failed.exc_value)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    given = sys.argv[1:] if arguments is None else [*arguments]
    with speaking(given):
        return _run(given)


def _run(arguments: Sequence[str]) -> int:
    session.begin(arguments)
    try:
        _require_current_folder()
        code = int(app(args=arguments, prog_name="vitral", standalone_mode=False) or 0)
        sys.stdout.flush()
        return code
    except _Carried as carried:
        return _fail(carried.error)
    except (Exception, KeyboardInterrupt) as error:
        return _fail(error)


def _fail(error: BaseException) -> int:
    """Say in one line why a command ended, and return its exit code."""
    if isinstance(error, OutputLost) and error.reader_left:
        return 0
    if getattr(error, "is_said", False):  # by another rank
        be_silent()
        return int(getattr(error, "exit_code", 70))
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        complain(_(str(error)) or _("interrupted"))
        return 130
    if hasattr(error, "format_message"):
        return _complain_of_usage(error)
    show_traceback(error)
    if isinstance(error, VitralError):
        complain(str(error))
        return error.exit_code
    return complain_of(error)


def _require_current_folder() -> None:
    """Refuse to start in a folder that was removed: libraries fail there without a reason."""
    try:
        os.getcwd()
    except OSError:
        raise UsageError("the current folder does not exist any more; change to another one") from None


def _complain_of_usage(error: Any) -> int:
    """Say in one line what the argument parser refuses, and return the exit code."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "vitral"
    setting = setting_meant(error, session.given())
    message = refusal(error.message if setting else error.format_message())
    if setting:
        message = _("{message}; did you mean {setting}?", message=message, setting=setting)
    complain(_("{message} (see {command} --help)", message=message, command=command))
    return int(getattr(error, "exit_code", 2))
