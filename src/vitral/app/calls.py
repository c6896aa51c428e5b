"""Facade functions refuse wrong values in one line: pydantic compares the arguments with the annotations first."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from vitral.core.errors import UsageError
from vitral.core.language import _

if TYPE_CHECKING:
    from pydantic import ValidationError

F = TypeVar("F", bound=Callable[..., Any])


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
        names: dict[str, Any] = {}
        if "Run'" in str(given.__annotations__):  # its module brings PyTorch
            from vitral.app.run import Run

            names["Run"] = Run
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

    return call  # pyright: ignore[reportReturnType]


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
        return _("unknown argument {name!r}, {hint}", name=name, hint=nearest(name, known))
    if first["type"].startswith("missing"):
        return _("{name}: is required", name=first["loc"][-1])
    data: dict[Any, Any] = {**dict(zip(known, given, strict=False)), **named}
    message = first_complaint(error, data)
    place = first["loc"][0]
    return f"{[*known][min(place, len(known) - 1)]}: {message}" if isinstance(place, int) else message
