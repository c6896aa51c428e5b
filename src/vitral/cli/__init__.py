"""The command line: parses, prints, exits. One file for each command; everything heavy is imported inside them."""

import io
import sys
from collections.abc import Sequence

import typer

from vitral.cli import (
    check,
    corpus,
    count,
    demo,
    doctor,
    evaluate,
    exercise,
    explain,
    generate,
    resume,
    study,
    train,
)
from vitral.cli import inspect as inspect_command
from vitral.cli import list as list_command
from vitral.cli.complaints import complain
from vitral.core.errors import VitralError

app = typer.Typer(
    name="vitral",
    help="Vitral: a small-Transformer laboratory with glass walls.\n\nTrain a language model on any text, then sample "
    "it, measure it, take it apart and explain it. Start with: vitral demo",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"max_content_width": 100},
)

for command in (
    demo.demo,
    corpus.corpus,
    count.count,
    train.train,
    resume.resume,
    evaluate.evaluate,
    generate.generate,
    inspect_command.inspect,
    explain.explain,
    exercise.exercise,
    check.check,
    study.study,
    doctor.doctor,
):
    app.command()(command)
app.command("list")(list_command.list_names)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; an error is one line on stderr and an exit code.

    0 success, 1 a check found something wrong, 2 invalid input, 3 a number in training was not finite, 4 writing to
    disk failed, 130 interrupted before there was anything to save.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these characters shows "?", not a traceback
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    try:
        return int(app(args=arguments, prog_name="vitral", standalone_mode=False) or 0)
    except VitralError as error:
        complain(str(error))
        return error.exit_code
    except KeyboardInterrupt as interruption:
        complain(str(interruption) or "interrupted")
        return 130
    except typer.Abort:
        complain("interrupted")
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the output has gone
        return 0
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        # An error of the argument parser.
        message = error.format_message().replace("Value error, ", "").rstrip(".")  # pyright: ignore[reportAttributeAccessIssue]
        context = getattr(error, "ctx", None)
        complain(f"{message} (see {context.command_path if context else 'vitral'} --help)")
        return int(getattr(error, "exit_code", 2))
