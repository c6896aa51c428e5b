"""The command line: parses, prints, exits. One file for each command; everything heavy is imported inside them."""

import gc
import logging
import os
import signal
import sys
import threading
from collections import UserDict
from collections.abc import Sequence
from functools import cache, partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command, get_command_from_info
from typer.models import CommandInfo

from vitral.app import session
from vitral.app.command import Command, callback, described
from vitral.app.facade import ask, carry, explain, look, study, train
from vitral.app.terminal import training, views
from vitral.app.terminal.help import COMPLETING, Group, LanguageOption, TranslatedCommand, refusal, speaking
from vitral.app.terminal.streams import OutputLost, complain, complain_of, guard, say, settle, show_traceback
from vitral.app.terminal.training import be_silent, leave
from vitral.core.errors import UsageError, VitralError
from vitral.core.language import _
from vitral.core.process import end_with_parent, launched, watch_interrupts

COMMANDS = (
    Command(study.demo, views.show_demo, training.touring, has_parts=False),
    Command(look.survey, views.show_with_page),
    Command(look.count, views.show),
    Command(look.forecast, views.show),
    Command(train.train, training.show_trained, training.training),
    Command(train.resume, training.show_continued, training.training),
    Command(train.continue_, training.show_continued, training.training),
    Command(ask.evaluate, views.show),
    Command(ask.why, views.show_object),
    Command(study.compare, views.show_with_page),
    Command(ask.generate, views.show_samples, views.pieces),
    Command(ask.chat, views.show_conversation),
    Command(ask.fill, views.show),
    Command(ask.inspect, views.show_inspection, partial(views.into_new_file, views.INSPECTED)),
    Command(explain.explain, views.show_walkthrough, partial(views.into_new_file, views.WALKED)),
    Command(explain.exercise, views.show_exercise, views.sheets_listed, has_parts=False),
    Command(explain.check, views.show_checks, has_parts=False, shown=("fix", "out")),
    Command(explain.grade, views.show_grades, has_parts=False),
    Command(study.study, views.show, training.comparing),
    Command(carry.bundle, views.show_object),
    Command(carry.open_, views.show_nothing, training.announced),
    Command(carry.serve, views.show_nothing, training.announced),
    Command(carry.import_, views.show_imported),
    Command(carry.export, views.show_export),
    Command(look.doctor, views.show_object),
    Command(views.list_names, views.show_names, has_parts=False),
)
"""In the order of the help."""
PartsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--parts",
        metavar="FILE.py",
        envvar="VITRAL_PARTS",
        help="Python file that registers parts of your own, which is run (docs/own-parts.md); repeatable.",
    ),
]
ALLOCATIONS = 50_000
"""Objects after which Python looks for unreachable cycles, not 700: imports make very many, and no garbage."""


class _Made(UserDict[str, Any]):
    """The commands by name, each made when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        return _made(name, self.data[name])


@cache
def _made(name: str, command: Command) -> Any:
    run = callback(command, ({"parts": PartsOption} if command.has_parts else {}) | {"lang": LanguageOption})

    @wraps(run)
    def called(parts: list[Path] | None = None, **given: Any) -> None:
        if parts:
            from vitral.core.parts import import_parts

            for path in parts:
                import_parts(path)
        run(**given)

    info = CommandInfo(name=name, cls=TranslatedCommand, callback=called)
    return get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)


SETTINGS: dict[str, Any] = {"max_content_width": 100, "help_option_names": ["-h", "--help"]}


class Commands(Group):
    """The group of all commands."""

    made = _Made({command.name: command for command in COMMANDS})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List them; none is made for its first sentence."""
        self.commands = {one.name: TranslatedCommand(one.name, help=described(one.function).text) for one in COMMANDS}
        super().format_commands(ctx, formatter)


app = typer.Typer(
    name="vitral",
    cls=Commands,
    help="Vitral: a small-Transformer laboratory with glass walls.\n\nTrain a language model on any text, then sample "
    "it, measure it, take it apart and explain it. Start with: vitral demo",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings=SETTINGS,
)


def _print_version(is_asked: bool) -> None:
    """One line, without the seconds that an import of PyTorch takes."""
    if is_asked:
        from vitral.core.machine import versions

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


def main() -> None:
    """Run a command; an error is one line on stderr and an exit code.

    0 success, 1 a check found something wrong, 2 invalid input or too little memory, 3 a number in training was not
    finite, 4 reading or writing failed (a full disk, a closed standard output), 70 a fault of Vitral, 130 interrupted
    before there was anything to save. With VITRAL_TRACEBACK=1 an error also shows where it comes from.
    """
    gc.set_threshold(ALLOCATIONS)
    guard()
    threading.excepthook = _thread_failed
    # Figures need no settings: not the user's, nor those in the current folder, which may be a stranger's.
    os.environ |= {"MPLBACKEND": "agg", "MATPLOTLIBRC": os.devnull}
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it also warns if it cannot keep its list of fonts
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else it reads about every installed package
    if launched():
        end_with_parent(signal.SIGTERM)
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # else PyTorch tells the user of lost connections too
    else:  # ranks end together, by their launcher
        watch_interrupts(complain)
    with speaking(sys.argv[1:]):
        code = _run(sys.argv[1:])
        settle()
    leave(code)


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    """TensorBoard's writer hands its error to the next call; the count of n-grams hands it to its result."""
    if failed.exc_value is not None:
        show_traceback(failed.exc_value)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    with speaking(arguments):
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    session.begin(arguments)
    try:
        _require_current_folder()
        if COMPLETING in os.environ:
            app(args=arguments, prog_name="vitral")
        path, given = "vitral", [*arguments]
        command: Any = get_command(app)
        if given and given[0] in Commands.made:  # not through the group, whose own options load pydantic
            command, path = Commands.made[given[0]], f"vitral {given.pop(0)}"
        with command.make_context(path, given, **SETTINGS) as context:  # its `main` would turn errors into exit codes
            command.invoke(context)
        sys.stdout.flush()
        return 0
    except typer.Exit as ended:
        sys.stdout.flush()
        return ended.exit_code
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
    from vitral.core.config import closest

    among = getattr(error, "possibilities", None) or ()  # by the parser, which takes the dashes for letters
    error.possibilities = [one for one in among if closest(error.option_name.lstrip("-"), [one.lstrip("-")])]
    context, message = getattr(error, "ctx", None), refusal(error.format_message())
    if setting := _setting_meant(error, session.given()):
        message = _("{message}; did you mean {setting}?", message=refusal(error.message), setting=setting)
    complain(
        "{message} (see {command} --help)",
        message=message,
        command=context.command_path if context else "vitral",
    )
    return error.exit_code


def _setting_meant(error: Any, given: Sequence[str]) -> str | None:
    """The --set that an unknown option stands for, with its value; None if no key of the configuration has its name."""
    option = getattr(error, "option_name", "") if type(error).__name__ == "NoSuchOption" else ""
    name = option.lstrip("-").replace("-", "_")
    is_like_another = error.format_message().replace("-", "_").count(name or "_") > 1
    if not name or is_like_another or all(one.name != "settings" for one in error.ctx.command.params):
        return None
    from vitral.core.config import keys_of
    from vitral.runs.config import RunConfig

    key = next((key for key in keys_of(RunConfig) if f"_{name}_" in f"_{key.rpartition('.')[2]}_"), None)
    value = " ".join(given).partition(option)[2][1:].partition(" ")[0]
    return key and f"--set {key}={value or '…'}"
