"""Checked calls: a public function compares its arguments with its annotations before it begins.

`@checked(first=True)` refuses a value of another kind in one line that names the argument, and keeps `Annotated` limits
such as `Count`. Whatever goes wrong inside a function passes unchanged.
"""

# pyright: standard
# Anything may be given here; that is what is checked.

import inspect
import os
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, reduce, wraps
from itertools import islice
from numbers import Integral, Real
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from jaxtyping import jaxtyped

from vitral.core.config import nearest, shown
from vitral.core.errors import UsageError
from vitral.core.language import N_, _, language

T = TypeVar("T", bound=Callable[..., Any])

MOST_ELEMENTS = 1000
"""Elements of a list that are compared with its annotation."""


class Within(NamedTuple):
    """A limit in an annotation: a finite number from `least` to `most`."""

    least: float = -sys.float_info.max
    most: float = sys.float_info.max

    def holds(self, value: Any) -> bool:
        """Whether a value keeps the limit; what is not a number has none."""
        return not isinstance(value, Real) or bool(self.least <= cast("float", value) <= self.most)

    def of(self, kind: str) -> str:
        """A kind of number with this limit, in words."""
        if self == Within():
            return _("{kind} that is finite", kind=kind)
        if self.most > 2**53:
            return _("{kind} of at least {least}", kind=kind, least=self.least)
        return _("{kind} from {least} to {most}", kind=kind, least=self.least, most=self.most)


Count = Annotated[int, Within(1, 2**63 - 1)]
"""A whole number of at least 1."""
Natural = Annotated[int, Within(0, 2**63 - 1)]
"""A whole number of at least 0, such as a seed."""
Finite = Annotated[float, Within()]
"""A number that is neither NaN nor infinite."""
Share = Annotated[float, Within(0, 1)]
"""A number from 0 to 1."""
Digits = Annotated[int, Within(0, 17)]
"""Digits after the decimal point."""


def checked(*, first: bool | Collection[str]) -> Callable[[T], T]:
    """Compare the arguments of a public function, or of a class's public methods, before each call.

    Args:
        first: True; of a class, also the names of the methods to do it for. The `forward` of a class is left alone.
    """
    return lambda target: _class(target, first) if isinstance(target, type) else _call(target)


def _class(target: Any, first: bool | Collection[str]) -> Any:
    for name, member in list(vars(target).items()):
        inner = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        public = name == "__init__" or not name.startswith("_")
        chosen = (public and name != "forward") if isinstance(first, bool) else name in first
        left_out = getattr(inner, "__isabstractmethod__", False) or hasattr(inner, "__checked__")
        if not chosen or left_out or not isinstance(inner, types.FunctionType):
            continue
        call = _call(inner)
        setattr(target, name, type(member)(call) if isinstance(member, classmethod | staticmethod) else call)
    return target


def _call(function: Any) -> Any:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        complaint = _complaint(function, args, kwargs)
        if complaint is not None:
            raise UsageError(f"{function.__qualname__.removesuffix('.__init__')}: {complaint}")
        return function(*args, **kwargs)

    call.__checked__ = True  # pyright: ignore[reportAttributeAccessIssue]
    return call


def _complaint(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The first argument that does not fit its annotation, in words."""
    signature, hints = _signature(function)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        return _unknown_keyword(signature, kwargs) or str(error)
    with jaxtyped("context"):
        for name, value in given.items():
            hint, kind = hints.get(name, Any), signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                hint = tuple[hint, ...]
            elif kind is inspect.Parameter.VAR_KEYWORD:
                hint = Mapping[str, hint]
            if not fits(value, hint):
                return _difference(name, value, hint, given)
    return None


@cache
def _signature(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """Its signature, and its annotations without strings."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError:  # a name that only a type checker imports
        hints = {name: hint for name, hint in function.__annotations__.items() if not isinstance(hint, str)}
    return inspect.signature(function), hints


def _unknown_keyword(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> str | None:
    parameters = signature.parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    unknown = next((name for name in kwargs if name not in parameters), None)
    if unknown is None:
        return None
    known = [name for name in parameters if name != "self"]
    if not known:
        return _("unknown argument {argument}; it takes none", argument=shown(unknown))
    return _("unknown argument {argument}, {hint}", argument=shown(unknown), hint=nearest(unknown, known))


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the annotated kind; NumPy's numbers are numbers, texts are paths, lists are tuples.

    True and False are no numbers, and a text is no list of texts. What an annotation leaves open fits.
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in args)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in args)
    if origin is Annotated:
        return fits(value, args[0]) and all(limit.holds(value) for limit in args[1:] if isinstance(limit, Within))
    if origin is not None:
        return _fits_generic(value, origin, args)
    if hint is None or hint is type(None):
        return value is None
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    if hint is Path:
        return isinstance(value, str | os.PathLike)
    if hint is Any or not isinstance(hint, type):
        return True
    only_for_type_checkers = getattr(hint, "_is_protocol", False) and not getattr(hint, "_is_runtime_protocol", False)
    return only_for_type_checkers or isinstance(value, hint)


def _fits_generic(value: Any, origin: Any, args: tuple[Any, ...]) -> bool:
    """Whether a value is such a container, and its elements are of their kind."""
    if not isinstance(origin, type):
        return True
    if issubclass(origin, Callable):
        return callable(value)
    if issubclass(origin, Mapping):
        kinds = args if len(args) == 2 else (Any, Any)
        return isinstance(value, Mapping) and all(
            fits(key, kinds[0]) and fits(one, kinds[1])
            for key, one in islice(cast("Mapping[Any, Any]", value).items(), MOST_ELEMENTS)
        )
    if not issubclass(origin, Iterable):
        return isinstance(value, origin)
    if _is_array(value):
        return len(value.shape) == 1 and _elements_fit(value, origin, args)
    if isinstance(value, str | bytes):
        return False
    if not isinstance(value, (tuple, list) if issubclass(origin, tuple | list) else origin):
        return False
    return isinstance(value, Iterator) or _elements_fit(value, origin, args)


def _elements_fit(value: Any, origin: type, args: tuple[Any, ...]) -> bool:
    if issubclass(origin, tuple) and args[-1:] != (Ellipsis,):
        return len(value) == len(args) and all(map(fits, value, args))
    return not args or all(fits(one, args[0]) for one in islice(value, MOST_ELEMENTS))


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type)


def _is_shape(hint: Any) -> bool:
    return hasattr(hint, "dim_str")


def _difference(name: str, value: Any, hint: Any, given: Mapping[str, Any]) -> str:
    """What was expected and what was given; with the other arrays where only the shapes together do not fit."""
    line = _("{name}: expected {kind}, got {given}", name=name, kind=_kind(hint), given=_given(value))
    with jaxtyped("context"):
        fits_alone = _is_array(value) and fits(value, hint)
    others = [f"{other} {_given(array)}" for other, array in given.items() if other != name and _is_array(array)]
    return _("{complaint} beside {others}", complaint=line, others=", ".join(others)) if fits_alone and others else line


_KINDS = {
    None: "None",
    type(None): "None",
    bool: N_("True or False"),
    int: N_("a whole number"),
    float: N_("a number"),
    str: N_("a text"),
    bytes: "bytes",
    Path: N_("a path"),
}


def _kind(hint: Any) -> str:
    """An annotation in words.

    >>> _kind(int | None), _kind(Annotated[int, Within(1)])
    ('a whole number or None', 'a whole number of at least 1')
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _(" or ").join(dict.fromkeys(_kind(one) for one in args))
    if origin is Literal:
        return _("one of {names}", names=", ".join(map(repr, args)))
    if origin is Annotated:
        limits = (limit for limit in args[1:] if isinstance(limit, Within))
        return reduce(lambda kind, limit: limit.of(kind), limits, _kind(args[0]))
    if _is_shape(hint):
        size = "array" if hint.dim_str == "..." else f"[{hint.dim_str}]"
        return f"{hint.dtype.__name__.lower()} {size} ({hint.array_type.__name__})"
    if origin is not None:
        return _kind_of_container(origin, args)
    if hint in _KINDS:
        return _(_KINDS[hint])
    return _with_article(hint.__name__) if isinstance(hint, type) else str(hint)


def _kind_of_container(origin: Any, args: tuple[Any, ...]) -> str:
    if not isinstance(origin, type):
        return str(origin)
    if issubclass(origin, Callable):
        return _("a function")
    if issubclass(origin, Mapping):
        return _("a table")
    if issubclass(origin, tuple) and args[-1:] != (Ellipsis,):
        return f"({', '.join(map(_kind, args))})"
    return _("a list") if not args or args[0] is Any else _("a list (each {kind})", kind=_kind(args[0]))


def _with_article(name: str) -> str:
    if language() != "en":  # a class has no gender there
        return name
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def _given(value: Any) -> str:
    """A value for a message: an array by dtype and shape, another object by its class."""
    if _is_array(value):
        return f"{str(value.dtype).rpartition('.')[2]} [{', '.join(map(str, value.shape))}] ({type(value).__name__})"
    plain = value is None or isinstance(value, bool | Real | str | bytes | Path | list | tuple | dict | set)
    return shown(value) if plain else _with_article(type(value).__name__)
