"""Arguments of facade functions: their kinds on the command line, their validation, and forms that other rooms take."""

import inspect
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce, wraps
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from annotated_types import Interval

from vitral.core.errors import UsageError, reason
from vitral.core.language import _

if TYPE_CHECKING:
    from pydantic import ValidationError

    from vitral.app.run import Run

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """A parameter on the command line, where its name and its type do not say it all.

    Attributes:
        flag: instead of the name with dashes, as "--samples" or "--cache/--no-cache".
        metavar: stands for the value in the help.
        parsed: the type that is parsed, instead of the annotation.
        offers: the kinds of names that completion offers (`vitral.app.command.names`).
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
        each: there may be several, and the view calls the function for each of them.
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


def lines(option: str, given: list[str]) -> list[str]:
    """Texts of the command line; in the place of @FILE its lines.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        read = [Path(one[1:]).read_text("utf-8").splitlines() if one.startswith("@") else [one] for one in given]
    except (OSError, ValueError) as error:
        raise UsageError("{option} {given}: {why}", option=option, given=" ".join(given), why=reason(error)) from None
    return list(itertools.chain(*read))


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


class _OfRuns(type):
    """The type of `Run` for validation: while its module, which brings PyTorch, is not loaded there is no run."""

    def __instancecheck__(cls, value: object) -> bool:
        loaded = sys.modules.get("vitral.app.run")
        return loaded is not None and isinstance(value, loaded.Run)


def validated(function: F) -> F:
    """The function with its arguments validated; nothing is imported or compared before the first call.

    NumPy's numbers are numbers and its rows are lists; True and False are no numbers, and a text is no list of texts.
    """

    @cache
    def accepted() -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
        from pydantic import ConfigDict, validate_call

        def given(*values: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
            return values, named

        given.__module__ = function.__module__
        given.__annotations__ = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
        names = {"Run": _OfRuns("Run", (), {})}
        hints = get_type_hints(given, vars(inspect.getmodule(function)), names, include_extras=True)
        given.__annotations__ = hints
        parameters = inspect.signature(function).parameters.values()
        given.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
            [one.replace(annotation=hints.get(one.name, Any)) for one in parameters]
        )
        config = ConfigDict(arbitrary_types_allowed=True, strict=True, allow_inf_nan=False)
        return validate_call(config=config)(given)

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        from pydantic import ValidationError

        try:
            values, options = accepted()(*map(_plain, given), **{name: _plain(value) for name, value in named.items()})
        except ValidationError as error:
            raise UsageError(f"{function.__name__}: {_complaint(error, function, given, named)}") from None
        return function(*values, **options)

    call.__signature__ = readable_signature(function)  # pyright: ignore[reportAttributeAccessIssue]
    return call  # pyright: ignore[reportReturnType]


@dataclass(frozen=True, repr=False)
class _Kind:
    text: str

    def __repr__(self) -> str:
        return self.text


def readable_signature(function: Callable[..., Any]) -> inspect.Signature:
    """A signature for `help` and completion: plain types, without what only the command line needs."""
    signature = inspect.signature(function)
    kinds = [
        one if one.annotation is one.empty else one.replace(annotation=_Kind(_readable(one.annotation)))
        for one in signature.parameters.values()
    ]
    return signature.replace(parameters=kinds, return_annotation=_Kind(_readable(signature.return_annotation)))


def keywords_of(function: Callable[..., Any]) -> Callable[[F], F]:
    """Gives a method, for `help` and completion, the keywords of the function that it passes its options to."""

    def named(method: F) -> F:
        own, theirs = readable_signature(method), inspect.signature(function).parameters.values()
        kept = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        kept += [one for one in theirs if one.kind is one.KEYWORD_ONLY]
        method.__signature__ = own.replace(parameters=kept)  # pyright: ignore[reportFunctionMemberAccess]
        return method

    return named


def _readable(hint: Any) -> str:
    """A type as a person writes it.

    >>> _readable(Annotated[Literal["best", "last"] | None, Option()]), _readable(Sequence[Count])
    ("'best' | 'last' | None", 'Sequence[int]')
    """
    args = get_args(hint)
    if get_origin(hint) is Annotated:
        return _readable(args[0])
    if get_origin(hint) in (Union, UnionType, Literal):
        return " | ".join(repr(one) if get_origin(hint) is Literal else _readable(one) for one in args)
    name = hint if isinstance(hint, str) else getattr(hint, "__forward_arg__", getattr(hint, "__name__", str(hint)))
    if hint in (None, NoneType):
        return "None"
    return name if not args or name == "Callable" else f"{name}[{', '.join(map(_readable, args))}]"


def _plain(value: Any) -> Any:
    """A number or a row of NumPy's as Python's."""
    return value.tolist() if hasattr(value, "tolist") else value


def _complaint(
    error: "ValidationError", function: Callable[..., Any], given: tuple[Any, ...], named: Mapping[str, Any]
) -> str:
    from vitral.core.config import first_complaint, nearest

    first = error.errors(include_url=False)[0]
    known = inspect.signature(function).parameters
    if first["type"] == "unexpected_keyword_argument":
        name = str(first["loc"][-1])
        return _("unknown argument {name!r}, {hint}", name=name, hint=nearest(name, known.keys() - {"self"}))
    if first["type"].startswith("missing"):
        return _("{name}: is required", name=first["loc"][-1])
    data: dict[Any, Any] = {**dict(zip(known, given, strict=False)), **named}
    message = first_complaint(error, data)
    at = first["loc"][0]
    return f"{[*known][min(at, len(known) - 1)]}: {message}" if isinstance(at, int) else message


def given(**options: Any) -> dict[str, Any]:
    """The options that a caller chose."""
    return {name: value for name, value in options.items() if value is not None and value != []}


def named(value: Any) -> Any:
    """A path as the text that a configuration has; everything else as it is."""
    return str(value) if isinstance(value, Path) else value


def of_text(
    encoding: str | None,
    field: str | None,
    glob: Sequence[str],
    specials: Sequence[str] = (),
    replace: str | None = None,
    **keys: Any,
) -> dict[str, Any]:
    """How a text is read, as a layer of configuration."""
    lists = {"glob": [*glob], "specials": [*specials]}
    corpus = given(encoding=encoding, field=field, replacement=replace, **lists, **keys)
    return {"corpus": corpus} if corpus else {}


def steps_planned(plan: str | None) -> dict[str, Any]:
    """The keys of `[training]` for a plan of steps: "auto", or a precision, compiled or not."""
    if plan is None or plan == "auto":
        return given(plan=plan)
    precision = plan.removeprefix("compiled-")
    return {"plan": "as-written", "dtype": precision, "compile": plan != precision}


def free_folder(name: str, is_free: Callable[[Path], bool] = lambda folder: not folder.exists()) -> Path:
    """The first free folder for a new run, which does not exist yet: `runs/NAME`, then `runs/NAME-2` and so on."""
    stem = Path(name).resolve().stem or "run"
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    return next(folder for one in names if is_free(folder := Path("runs") / one))


def _class_of_runs() -> "type[Run]":
    """`Run`, found when it is needed: its methods are validated too."""
    return import_module("vitral.app.run").Run


def path_of(run: "str | Path | Run", *, changes: bool = False) -> Path:
    """The folder of a run; `changes` says whether the caller writes into it.

    Raises:
        UsageError: an empty path, a frame or a run with hooks, which are no folders, or no run of the zoo, or one that
            would be changed.
    """
    from vitral.runs.zoo import located, refuse_changes

    if run == "":
        raise UsageError("a run's folder is expected, not an empty text")
    if not isinstance(run, str | Path):
        if run.frame is not None:
            raise UsageError("{path}: it is a frame of the film; give the run that it is of", path=run.path)
        if run.hooks:
            raise UsageError("{path}: hooks are not saved with a run; pass the run without hooks", path=run.path)
        run = run.path
    if changes:
        refuse_changes(run)
    return located(run)


def opened(
    run: "str | Path | Run",
    checkpoint: Any = None,
    device: str | None = None,
    dtype: Any = None,
    corpus: str | Path | None = None,
) -> "Run":
    """A loaded run: that of a folder, or the given one, which is taken as it is unless one of the others is given.

    A frame remains the frame, unless a checkpoint is asked for.

    Raises:
        UsageError: not a run, or it cannot be loaded so.
    """
    asked: Mapping[str, Any] = given(which=checkpoint, device=device, dtype=dtype, corpus=corpus)
    if isinstance(run, str | Path):
        return _class_of_runs()(run, **asked)
    now = {"which": run.which, "device": run.device, "dtype": run.dtype, "corpus": run.corpus}
    made = _class_of_runs()(run.path, **{**now, **asked}) if asked else run
    if made is run:
        return run
    made = made if run.frame is None or checkpoint else made.at(run.frame)
    return reduce(_class_of_runs().hooked, run.hooks, made)
