"""Checked calls: a public function compares its arguments with its annotations before it begins.

`@checked` refuses a value of another kind in one line that names the argument, and keeps `Annotated` limits
such as `Count`. Whatever goes wrong inside a function passes unchanged.
"""

# pyright: standard
# Anything may be given here; that is what is checked.

import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, wraps
from itertools import islice
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from jaxtyping import jaxtyped

from vitral.core.config import closest, shown
from vitral.core.errors import UsageError
from vitral.core.language import _

T = TypeVar("T", bound=Callable[..., Any])

MOST_ELEMENTS = 1000
"""Elements of a list that are compared with its annotation."""


class Within(NamedTuple):
    """A limit in an annotation: a finite number from `least` to `most`."""

    least: float = -sys.float_info.max
    most: float = sys.float_info.max

    def __repr__(self) -> str:
        """As in messages."""
        return f"{self.least:g} to {self.most:g}"

    def holds(self, value: Any) -> bool:
        """Whether a value keeps the limit; what is not a number has none."""
        return not isinstance(value, Real) or bool(self.least <= cast("float", value) <= self.most)


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


def checked(target: T) -> T:
    """Compare the arguments of a public function, or of a class's public methods but `forward`, before each call."""
    if isinstance(target, types.FunctionType):
        return _call(target)
    for name, member in list(vars(target).items()):
        inner = getattr(member, "__func__", member)
        is_public = name == "__init__" or not name.startswith(("_", "forward"))
        if is_public and isinstance(inner, types.FunctionType) and not hasattr(inner, "__isabstractmethod__"):
            call = _call(inner)
            setattr(target, name, call if inner is member else type(member)(call))
    return target


def _call(function: Any) -> Any:
    if hasattr(function, "__checked__"):
        return function

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
        unknown = next((name for name in kwargs if name not in signature.parameters), "")
        hint = closest(unknown, signature.parameters)
        return f"{error}; {hint}" if hint else str(error)
    with jaxtyped("context"):
        for name, value in given.items():
            if not fits(value, hints.get(name, Any)):
                arrays = ", ".join(f"{other} {_given(one)}" for other, one in given.items() if _is_array(one))
                beside = f" ({arrays})" if _is_array(value) else ""
                kind = re.sub(r"\b(jax)?typing\.", "", inspect.formatannotation(hints[name]))
                return _("{name}: expected {kind}, got {given}", name=name, kind=kind, given=_given(value)) + beside
    return None


@cache
def _signature(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """Its signature, and its annotations without strings."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError:  # a name that only a type checker imports
        hints = {name: hint for name, hint in function.__annotations__.items() if not isinstance(hint, str)}
    signature = inspect.signature(function)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL and name in hints:
            hints[name] = Sequence[hints[name]]
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD and name in hints:
            hints[name] = Mapping[str, hints[name]]
    return signature, hints


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
    if hint is None or hint is Any:
        return value is None or hint is Any
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    if hint is Path:
        return isinstance(value, str | PathLike)
    kind = origin or hint
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    return _fits_container(value, origin, args) if origin else isinstance(value, kind)


def _fits_container(value: Any, origin: type, args: tuple[Any, ...]) -> bool:
    """Whether a value is such a container, and its first elements are of their kind."""
    if issubclass(origin, Mapping):
        pairs = islice(value.items(), MOST_ELEMENTS) if isinstance(value, Mapping) else [(value, value)]
        return isinstance(value, Mapping) and all(all(map(fits, pair, args)) for pair in pairs)
    if issubclass(origin, Iterable) and not issubclass(origin, Iterator):
        like = tuple | list if issubclass(origin, tuple | list) else origin
        is_row = _is_array(value) and len(value.shape) == 1
        if isinstance(value, str | bytes) or not (is_row or isinstance(value, like)):
            return False
        if issubclass(origin, tuple) and args[-1] is not Ellipsis:
            return len(cast("tuple[Any, ...]", value)) == len(args) and all(map(fits, value, args))
        return isinstance(value, Iterator) or all(fits(one, args[0]) for one in islice(value, MOST_ELEMENTS))
    return callable(value) if origin is Callable else isinstance(value, origin)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type)


def _given(value: Any) -> str:
    """A value for a message: an array by dtype and shape."""
    return f"{str(value.dtype).rpartition('.')[2]} {list(value.shape)}" if _is_array(value) else shown(value)
