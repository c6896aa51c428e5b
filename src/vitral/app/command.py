"""Commands made of facade functions: options, defaults and help are those of the signature and its docstring."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import typer
from annotated_types import Interval

from vitral.app.arguments import Argument, Option, Paths

Around = Callable[..., AbstractContextManager[Mapping[str, Any]]]


class Command(NamedTuple):
    """A command.

    Attributes:
        function: of the facade.
        view: prints what the function returned, and may return an exit code; its keyword parameters are options, too.
            A parameter that the function has as well is given to both.
        around: a context of the call, made of all options; it gives arguments that only Python has, such as callbacks.
        has_parts: whether a model may be built, and thus need the user's own parts.
        shown: parameters of the function that only the view is given, since it does that work while it prints.
    """

    function: Callable[..., Any]
    view: Callable[..., int | None]
    around: Around = lambda **given: nullcontext({})
    has_parts: bool = True
    shown: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The command's, which may be a word of Python."""
        return {"survey": "corpus", "list_names": "list"}.get(
            self.function.__name__, self.function.__name__.rstrip("_")
        )


class Described(NamedTuple):
    """A Google docstring: the text before its sections, and the text of each argument."""

    text: str
    args: dict[str, str]


def described(function: Callable[..., Any]) -> Described:
    """The text of a function's docstring, and of each argument in it."""
    text, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:\n")
    args = re.findall(r"^    (\w+): (.*(?:\n      +.*)*)", re.split(r"\n\n(?=\w+:\n)", rest)[0], re.MULTILINE)
    args = {name: re.sub(r"\s+", " ", said).replace(". [", ".  [") for name, said in args}
    return Described(re.split(r"\n\n(?:Returns|Raises|Note):\n", f"{text}\n")[0].strip(), args)


def callback(command: Command, extra: Mapping[str, Any]) -> Callable[..., None]:
    """A function for typer with the parameters of a facade function and of its view.

    Args:
        command: the command.
        extra: further parameters by name, with their annotations; they are used by the program, not by the command.
    """
    own = [*_parameters(command.function)]
    own += [one for one in _parameters(command.view) if one.name not in {each.name for each in own}]
    marks = {name: mark for one in (command.function, command.view) for name, mark in _marks(one).items()}
    kinds = inspect.signature(inspect.unwrap(command.function)).parameters
    of_view = [*inspect.signature(command.view).parameters][1:]
    each = [name for name, mark in marks.items() if isinstance(mark, Argument) and mark.each]
    several = each + [name for name, one in kinds.items() if one.kind is one.VAR_POSITIONAL]
    keywords = [name for name, one in kinds.items() if one.kind is one.VAR_KEYWORD]

    def called(**given: Any) -> None:
        given = {name: value for name, value in given.items() if value not in (None, []) and name not in extra}
        for name, value in given.items():
            read = getattr(marks.get(name), "read", None)
            given[name] = read(_flag(name), value) if read else value
        for_view = {name: given[name] for name in of_view if name in given}
        rest = {name: value for name, value in given.items() if name in kinds and name not in command.shown}
        for name in keywords:
            rest |= _settings(rest.pop(name, ()))
        words = [word for name in several for word in rest.pop(name, ())]
        results: list[Any] = []
        with command.around(**given) as more:
            if each:
                results.append((word, partial(command.function, word, **rest, **more)) for word in words)
            else:
                results.append(command.function(*words, **rest, **more))
        code = sum(command.view(one, **for_view) or 0 for one in results)
        if code:
            raise typer.Exit(code)

    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in extra.items()]
    called.__signature__ = inspect.Signature([*own, *added])  # pyright: ignore[reportFunctionMemberAccess]
    called.__annotations__ = {one.name: one.annotation for one in (*own, *added)}
    called.__doc__ = described(command.function).text
    return called


def _settings(given: Any) -> dict[str, Any]:
    """The tables of --set."""
    if not given:
        return {}
    from vitral.core.config import assignment, merge

    return merge(*map(assignment, given))


def _flat(hint: Any) -> Iterator[Any]:
    """The members of a union, the type and the marks of an `Annotated`, and theirs."""
    if get_origin(hint) in (Annotated, Union, UnionType):
        for one in get_args(hint):
            yield from _flat(one)
    else:
        yield hint


def _marks(function: Callable[..., Any]) -> dict[str, Option | Argument]:
    """The mark of each parameter for the command line; the outermost one counts."""
    hints = function.__annotations__.items()
    marks = {name: [one for one in _flat(hint) if isinstance(one, Option | Argument)] for name, hint in hints}
    return {name: ones[-1] for name, ones in marks.items() if ones}


def _parameters(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """The parameters that a user of the command line can give."""
    helps, marks = described(function).args, _marks(function)
    for one in inspect.signature(inspect.unwrap(function)).parameters.values():
        said = helps.get(one.name, "Python only")
        if said.startswith("Python only"):
            continue
        if one.kind is one.VAR_KEYWORD:
            mark, parts, kind = Option("--set", "KEY=VALUE"), [], list[str]
        else:
            mark, parts = marks.get(one.name, Option()), [*_flat(one.annotation)]
            kind = mark.parsed or _parsed(parts)
        if one.kind is one.VAR_POSITIONAL or (isinstance(mark, Argument) and mark.each):
            kind = list[kind]
        is_needed = one.default is one.empty and one.kind is not one.VAR_KEYWORD
        default = None if is_needed or one.default in (one.empty, ()) else one.default
        default = mark.default if isinstance(mark, Option) and mark.default is not None else default
        span = next((part for part in parts if isinstance(part, Interval)), Interval())
        offers = mark.offers and completing(mark.offers)
        more: dict[str, Any] = {"help": said, "metavar": mark.metavar, "autocompletion": offers}
        more |= {} if span == Interval() else {"min": span.ge, "max": None if span.le == 2**63 - 1 else span.le}
        more["show_default"] = default not in (None, "") and default is not False  # 0 is shown
        if isinstance(mark, Argument):
            info = typer.Argument(**more)
        else:
            info = typer.Option(*(mark.flag or _flag(one.name, default)).split(" or "), **more)
        hint = Annotated[kind if is_needed or default is not None else kind | None, info]
        yield inspect.Parameter(
            one.name, one.KEYWORD_ONLY, annotation=hint, default=one.empty if is_needed else default
        )


def _flag(name: str, default: Any = None) -> str:
    words = name.strip("_").replace("_", "-")
    return f"--{words}/--no-{words}" if default is True else f"--{words}"


def _parsed(parts: list[Any]) -> Any:
    """The type that the parser makes: a path of what may be a text or a path, a list of any sequence."""
    kinds = [part for part in parts if part is not NoneType and (isinstance(part, type) or get_origin(part))]
    if set(get_args(Paths)) <= set(kinds):
        return get_args(Paths)[1]
    return list[str] if getattr(get_origin(kinds[0]), "__name__", "") == "Sequence" else kinds[0]


EXERCISE_KINDS = ("attention", "multi-head", "block", "positions", "choice", "loss", "cross-attention", "difference")
"""Those of `vitral.explanation`, which loads slowly."""
TEXTS = (
    *("alice", "bras-cubas", "dom-casmurro", "frankenstein", "machado", "os-lusiadas", "python", "sample"),
    *("sample-pt", "shakespeare", "tinyshakespeare"),
)
"""The names of `vitral.data.corpus_names`, whose import takes seconds."""
FOLDERS = {"examples": "explanation/gallery", "presets": "runs/_presets", "studies": "studies/catalogue"}
"""Each kind of names that are those of files, and the folder of these."""


def names(kind: str) -> list[str]:
    """All names of a kind."""
    if kind in FOLDERS:
        return [file.stem for file in (Path(__file__).parents[1] / FOLDERS[kind]).glob("*.toml")]
    return [*(TEXTS if kind == "texts" else EXERCISE_KINDS)]


def completing(kinds: str) -> Callable[[str], list[str]]:
    """The completion of an argument that is a name of one of several kinds."""
    return lambda incomplete: sorted(
        name for kind in kinds.split() for name in names(kind) if name.startswith(incomplete)
    )
