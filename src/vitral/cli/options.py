"""Options that several commands share, declared once."""

import enum
import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitral.cli.completion import complete_run, complete_text
from vitral.core.errors import UsageError

if TYPE_CHECKING:
    from vitral.explanation import Choice


class Format(enum.StrEnum):
    """The form of printed output."""

    text = "text"
    json = "json"


class TableFormat(enum.StrEnum):
    """The form of a printed table."""

    text = "text"
    json = "json"
    csv = "csv"
    markdown = "markdown"
    latex = "latex"


class DeviceName(enum.StrEnum):
    """Where a model runs."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


class Precision(enum.StrEnum):
    """The number format in which a model runs."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float64 = "float64"


class Which(enum.StrEnum):
    """Which checkpoint of a run."""

    best = "best"
    last = "last"


class Form(enum.StrEnum):
    """The form of a walkthrough."""

    text = "text"
    markdown = "markdown"
    html = "html"
    json = "json"
    latex = "latex"


FormatOption = Annotated[Format, typer.Option("--format", help="Output for people (text) or programs (json).")]
TableFormatOption = Annotated[
    TableFormat,
    typer.Option("--format", help="Output for people (text), programs (json, csv) or documents (markdown, latex)."),
]
DeviceOption = Annotated[DeviceName, typer.Option(help="Device to run the model on.")]
DtypeOption = Annotated[Precision, typer.Option(help="Precision to run the model in.")]
WhichOption = Annotated[
    Which, typer.Option("--checkpoint", help="Checkpoint with the lowest validation loss (best), or the last one.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a configuration value, as in model.d_model=64; repeatable."),
]
CorpusOption = Annotated[
    str | None,
    typer.Option("--corpus", help="Text to use instead of the one in the configuration.", autocompletion=complete_text),
]
EncodingOption = Annotated[
    str | None,
    typer.Option(
        "--encoding", metavar="NAME", help="Encoding of the text, such as shift_jis or cp1252.  [default: UTF-8]"
    ),
]
FieldOption = Annotated[
    str | None,
    typer.Option(
        "--field",
        metavar="KEY",
        help="Of JSON lines, the key of the text, such as text or message.content.  [default: lines as they are]",
    ),
]
GlobOption = Annotated[
    list[str] | None,
    typer.Option(
        "--glob", metavar="PATTERN", help="Of a folder, only files such as '*.py'; repeatable.  [default: all]"
    ),
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="char, byte, bpe, or bpe with its size, as in bpe:1024.  [default: chosen for the text]"
    ),
]
ContextOption = Annotated[
    int | None,
    typer.Option(help="Tokens in the model's input.  [default: chosen for the text and the time]", min=1),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        help="Threads of the processor.  [default: that of the configuration, OMP_NUM_THREADS, or the faster of 1 and "
        "all cores]",
        min=1,
        max=1024,
    ),
]
SpecialOption = Annotated[
    list[str] | None,
    typer.Option("--special", help="Special token, as in '<|endoftext|>': a string that is one token; repeatable."),
]
ReplaceOption = Annotated[
    str | None,
    typer.Option(
        "--replace", help="Character to put in place of ones the model has never seen.  [default: refuse them]"
    ),
]
RunFolderOption = Annotated[Path | None, typer.Option(help="Folder to create.  [default: a new one under runs/]")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.", autocompletion=complete_run)]

HeadOption = Annotated[
    str | None,
    typer.Option(
        help="Heads to show, as in 0 or 0,1 or all; worked examples count from 1.  [default: 0 of a run, all of an "
        "example]"
    ),
]
QueryOption = Annotated[
    int | None, typer.Option(help="Query position to work through.  [default: the middle one; the last with --ending]")
]
KeyOption = Annotated[int | None, typer.Option(help="Key position to work through.  [default: the most attended]")]
ColumnOption = Annotated[int | None, typer.Option(help="Feature to work through.  [default: the first]")]
DigitsOption = Annotated[int, typer.Option(help="Digits after the decimal point.", min=0, max=12)]
AllOption = Annotated[
    bool, typer.Option("--all", help="Write all rows, columns and terms of sums.  [default: those that matter most]")
]
SortTermsOption = Annotated[
    bool, typer.Option("--sort-terms", help="Write the terms of a sum in the order of their size.")
]
FormOption = Annotated[Form, typer.Option("--format", help="Form of the walkthrough.")]
FileOption = Annotated[Path | None, typer.Option(help="File to write the walkthrough to.  [default: the screen]")]


def setting_meant(error: Any, given: Sequence[str]) -> str | None:
    """The --set that an unknown option stands for, with its value; None if no key of the configuration has its name."""
    option = error.option_name if type(error).__name__ == "NoSuchOption" else ""
    name = option.lstrip("-").replace("-", "_")
    is_like_another = error.format_message().replace("-", "_").count(name or "_") > 1
    if not name or is_like_another or all(one.name != "settings" for one in error.ctx.command.params):
        return None
    from vitral.core.config import keys_of
    from vitral.runs.config import RunConfig

    key = next((key for key in keys_of(RunConfig) if f"_{name}_" in f"_{key.rpartition('.')[2]}_"), None)
    value = " ".join(given).partition(option)[2][1:].partition(" ")[0]
    return key and f"--set {key}={value or '…'}"


def with_option(
    command: Callable[..., None], name: str, option: Any, use: Callable[[Any], None] | None = None
) -> Callable[..., None]:
    """The command with one more option, the last; `use` is called with its value before the command."""

    @functools.wraps(command)
    def called(*given: Any, **options: Any) -> None:
        value = options.pop(name, None)
        if use is not None:
            use(value)
        command(*given, **options)

    signature = inspect.signature(command)
    added = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
    called.__signature__ = signature.replace(parameters=[*signature.parameters.values(), added])  # pyright: ignore
    called.__annotations__ = {**command.__annotations__, name: option}
    return called


def runtime(device: DeviceName | None, dtype: Precision | None) -> dict[str, Any]:
    """Device and precision as a layer of configuration; an option that was not given changes nothing."""
    given = {"device": device, "dtype": dtype}
    return {"training": {name: value.value for name, value in given.items() if value is not None}}


def reading(encoding: str | None, field: str | None, glob: list[str] | None) -> dict[str, Any]:
    """How a text is read as a layer of configuration; an option that was not given changes nothing."""
    options = {"encoding": encoding, "field": field, "glob": glob or None}
    given = {name: value for name, value in options.items() if value is not None}
    return {"corpus": given} if given else {}


def numbers(option: str, given: str, first: int) -> tuple[int, ...] | None:
    """Numbers from the command line, counted from 0; None for all.

    Raises:
        UsageError: not numbers separated by commas.
    """
    if given == "all":
        return None
    try:
        return tuple(dict.fromkeys(int(part) - first for part in given.split(",")))
    except ValueError:
        raise UsageError(
            "{option} {given}: expected numbers as in 0 or 0,1, or all", option=option, given=given
        ) from None


def choice_of(heads: str, query: int | None, key: int | None, column: int | None, first: int) -> "Choice":
    """The cells to work through; `first` is the number that the user gives to the first position and head.

    Raises:
        UsageError: heads are not numbers.
    """
    from vitral.explanation import Choice

    query, key, column = (None if place is None else place - first for place in (query, key, column))
    return Choice(numbers("--head", heads, first), query, key, column or 0)


RecordedCorpusOption = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        help="The run's text, if it is no longer where it was: a file, a folder, a name.",
        autocompletion=complete_text,
    ),
]
