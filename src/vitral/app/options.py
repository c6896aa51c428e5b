"""Kinds of arguments that several facade functions share, with their names and forms on the command line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from annotated_types import Interval

from vitral.core.errors import UsageError

if TYPE_CHECKING:
    from vitral.app.run import Run


@dataclass(frozen=True)
class Option:
    """A parameter on the command line, where its name and its type do not say it all.

    Attributes:
        flag: instead of the name with dashes, as "--samples" or "--cache/--no-cache".
        metavar: stands for the value in the help.
        parsed: the type that is parsed, instead of the annotation.
        offers: the kinds of names that completion offers (`vitral.app.completion`).
        read: makes the value of the option and its text.
        default: of the command, where it is not the function's.
    """

    flag: str | None = None
    metavar: str | None = None
    parsed: Any = None
    offers: str | None = None
    read: Callable[[str, Any], Any] | None = None
    default: Any = None


@dataclass(frozen=True)
class Argument:
    """A positional word of the command line.

    Attributes:
        metavar: stands for it in the help.
        parsed: the type that is parsed.
        offers: as of an `Option`.
        each: there may be several, and the function is called for each of them.
    """

    metavar: str
    parsed: Any = str
    offers: str | None = None
    each: bool = False


def numbers(option: str, given: str) -> list[int] | Literal["all"]:
    """Numbers of the command line, as in 0 or 0,1 or all.

    Raises:
        UsageError: the text has something else.
    """
    try:
        return "all" if given == "all" else [int(part) for part in given.split(",")]
    except ValueError:
        raise UsageError("{option} {given}: expected numbers as in 0 or 1,2,3", option=option, given=given) from None


def points(option: str, given: str) -> dict[str, float]:
    """Points of steps, as in weights=3,output=2.

    Raises:
        UsageError: the text is not made of such pairs.
    """
    try:
        return {name.strip(): float(number) for name, number in (pair.split("=") for pair in given.split(","))}
    except ValueError:
        raise UsageError(
            "{option} {given}: expected STEP=POINTS, as in weights=3,output=2", option=option, given=given
        ) from None


Paths = str | Path
Callback = Callable[[Any], Any]
Count = Annotated[int, Interval(ge=1, le=2**63 - 1)]
Natural = Annotated[int, Interval(ge=0, le=2**63 - 1)]
Share = Annotated[float, Interval(ge=0, le=1)]
Weight = Annotated[float, Interval(ge=0)]
Threads = Annotated[int, Interval(ge=1, le=1024)]
Digits = Annotated[int, Interval(ge=0, le=12)]
Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["float32", "bfloat16", "float64"]
Which = Annotated[Literal["best", "last"] | None, Option("--checkpoint", default="best")]
WhereRun = Annotated[Device | None, Option(default="cpu")]
RunIn = Annotated[Precision | None, Option(default="float32")]
StepPlan = Literal["auto", "float32", "bfloat16", "compiled-float32", "compiled-bfloat16"]
Numbers = Annotated[int | Sequence[int] | Literal["all"] | None, Option(parsed=str, read=numbers)]
RunLike = Annotated[Union[str, Path, "Run"], Argument("RUN", Path)]
Text = Annotated[Paths, Option(parsed=str, offers="texts")]
TextOrTable = Annotated[Paths | dict[str, Any], Option("--corpus", parsed=str, offers="texts")]
Tokenizer = Annotated[str | None, Option(metavar="NAME")]
Encoding = Annotated[str | None, Option(metavar="NAME")]
Field = Annotated[str | None, Option(metavar="KEY")]
Glob = Annotated[Sequence[str], Option(metavar="PATTERN")]
Specials = Annotated[Sequence[str], Option("--special")]
Format = Literal["text", "json"]
TableFormat = Literal["text", "json", "csv", "markdown", "latex"]
Form = Literal["text", "markdown", "html", "json", "latex"]
