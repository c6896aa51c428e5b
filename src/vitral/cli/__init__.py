"""The command line: parses, prints, exits. Everything heavy is imported inside the commands."""

import io
import sys

import typer

from vitral.cli import building, examining, experimenting, explaining, using
from vitral.cli.complaints import complain
from vitral.core.errors import VitralError

app = typer.Typer(
    name="vitral",
    help="Vitral: a small-Transformer laboratory with glass walls.\n\nFrom any text to a trained language model "
    "that can be sampled, measured, taken apart and explained. Start with: vitral demo",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
)

for command in (experimenting.demo, building.corpus, building.train, building.resume, building.count):
    app.command()(command)
for command in (
    using.evaluate,
    using.generate,
    explaining.explain,
    explaining.check,
    experimenting.study,
    examining.doctor,
):
    app.command()(command)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; an error is one line on stderr and the exit code that belongs to it.

    0 done, 1 a check found something wrong, 2 something given cannot be used, 3 training met a number that is not
    finite, 4 the disk failed, 130 interrupted before there was anything to save.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our letters shows "?", not a traceback
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run a command and give its exit code."""
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
        sys.stderr.close()  # the reader of our output has gone; nothing is left to say
        return 0
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        # What the argument parser refuses.
        complain(f"{error.format_message()} (vitral COMMAND --help tells more)")  # pyright: ignore[reportAttributeAccessIssue]
        return int(getattr(error, "exit_code", 2))
