"""Strict, frozen configuration: unknown keys are refused, and the nearest known name is suggested.

A configuration is read from plain data (TOML) and written as plain data (`Config.plain`). Everything a user can
configure subclasses `Config`, so one function, `parse`, turns any mistake into one line that names the key.
"""

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeGuard, cast, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from vitral.core.errors import UsageError, reason
from vitral.core.files import read_capped, readable
from vitral.core.language import N_, _

LONGEST_SHOWN = 60
MOST_KEYS = 20
"""Tables inside tables that one `a.b=c` may name."""
NAME = r"^[a-z0-9][a-z0-9-]{0,63}$"
"""The names of studies and of their arms."""
MOST_TOML = 1 << 20
"""Maximum size of a configuration file in bytes."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The question whether the known name closest to `name` is meant; None if none is close.

    Of close names one that contains `name` comes first: `num_heads` for `heads`, although `d_head` has fewer letters.
    """
    close = difflib.get_close_matches(name, sorted(known), n=5)
    close.sort(key=lambda one: name not in one)
    return _("did you mean {name!r}?", name=close[0]) if close else None


def nearest(name: str, known: Iterable[str]) -> str:
    """A phrase that suggests the known name closest to `name`, or lists all known names."""
    known = sorted(known)
    return closest(name, known) or _("known: {names}", names=", ".join(known))


class _ConfigType(type(BaseModel)):
    def __call__(cls, *args: Any, **data: Any) -> Any:
        """Refuse a wrong value in one line where a configuration is made by its class."""
        if args:
            raise UsageError("{name}: give its fields by name, as in {name}(name=...)", name=cls.__name__)
        try:
            return super().__call__(**data)
        except ValidationError as error:
            raise UsageError(f"{cls.__name__}: {first_complaint(error, data)}") from None


class Config(BaseModel, metaclass=_ConfigType):
    """Base class of all configurations: frozen, strict about types, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in cast("dict[Any, Any]", data):
                if key not in known:
                    raise ValueError(_("unknown key {key!r}, {hint}", key=key, hint=nearest(str(key), known)))
        return cast("Any", data)

    @classmethod
    def parse(cls, data: Mapping[str, Any], where: str = "config") -> Self:
        """Build a configuration from plain data.

        Args:
            data: nested plain data, as read from TOML.
            where: the origin of the data, used in error messages.

        Raises:
            UsageError: a key or value is wrong; names the key and the expected value.
        """
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            raise UsageError(f"{where}: {first_complaint(error, data)}") from None

    def plain(self) -> dict[str, Any]:
        """The configuration as plain data without unset keys; `parse(c.plain()) == c`."""
        return self.model_dump(mode="json", exclude_none=True, by_alias=True)


def keys_of(kind: Any, above: str = "") -> Iterator[str]:
    """Every key that a configuration, or one of several, may have, with its tables, as in `model.d_model`."""
    for one in get_args(kind):
        yield from keys_of(one, above)
    if isinstance(kind, type) and issubclass(kind, Config):
        for name, field in kind.model_fields.items():
            yield f"{above}{name}"
            yield from keys_of(field.annotation, f"{above}{name}.")


_COMPLAINTS = {
    "int_type": N_("input should be a valid integer"),
    "int_from_float": N_("input should be a valid integer, got a number with a fractional part"),
    "float_type": N_("input should be a valid number"),
    "finite_number": N_("input should be a finite number"),
    "bool_type": N_("input should be a valid boolean"),
    "string_type": N_("input should be a valid string"),
    "string_too_short": N_("expected some text"),
    NAME: N_("expected a name of at most 64 lower-case letters, digits and hyphens"),
    "tuple_type": N_("input should be a valid tuple"),
    "greater_than": N_("input should be greater than {gt}"),
    "greater_than_equal": N_("input should be greater than or equal to {ge}"),
    "less_than": N_("input should be less than {lt}"),
    "less_than_equal": N_("input should be less than or equal to {le}"),
    "missing": N_("is required here"),
    "model_type": N_("expected a table"),
    "model_attributes_type": N_("expected a name or a table"),
    "union_tag_not_found": N_("the table needs a {discriminator}"),
}
"""The frequent complaints of pydantic, by their type, and of a text that does not have a pattern, by this."""


def first_complaint(error: ValidationError, data: Mapping[str, Any]) -> str:
    """The most relevant complaint of a pydantic error as `key.path: message`."""
    first = max(error.errors(include_url=False), key=_closeness)
    context = first.get("ctx", {})
    kind = context.get("pattern", first["type"])
    keys = _keys_written(first["loc"], data)
    if kind == "missing":
        keys.append(str(first["loc"][-1]))
    if "error" in context:
        message = _(reason(context["error"]))
    elif kind in ("literal_error", "union_tag_invalid"):
        listed = context.get("expected") or context["expected_tags"]
        options = [option.strip(" '") for option in str(listed).replace(" or ", ",").split(",")]
        given = context.get("tag", first["input"])
        message = _("{given} is not one of {names}", given=shown(given), names=", ".join(options))
        if hint := closest(str(given), options):
            message = f"{message}; {hint}"
    else:
        foreign = f"{first['msg'][0].lower()}{first['msg'][1:]}"
        values = {name: str(value).strip("'") for name, value in context.items()}
        message = _(_COMPLAINTS[kind], **values) if kind in _COMPLAINTS else foreign
        if kind not in ("missing", "union_tag_not_found"):
            message = _("{complaint}, not {given}", complaint=message, given=shown(first["input"]))
    return f"{'.'.join(keys)}: {message}" if keys else message


def shown(value: Any) -> str:
    """A value for a message: its repr on one line, truncated if long.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"
    """
    try:
        text = ascii(value) if not repr(value).isprintable() else repr(value)
    except ValueError:  # an integer with more digits than Python converts to text
        text = _("a number of thousands of digits")
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _closeness(complaint: Mapping[str, Any]) -> tuple[int, bool]:
    """Sort key of pydantic's complaints: it reports one for every member of a union.

    The most deeply nested complaint belongs to the intended member; among equals, a string was meant as a name.
    """
    return len(complaint["loc"]), (complaint["type"] == "literal_error") == isinstance(complaint["input"], str)


def _keys_written(location: Iterable[int | str], data: Any) -> list[str]:
    """The keys of a pydantic location that the user wrote; its other entries name members of unions."""
    keys: list[str] = []
    for part in location:
        if isinstance(data, Mapping | list) and (part in data if isinstance(data, Mapping) else isinstance(part, int)):
            keys.append(str(part))
            data = cast("Any", data)[part]
    return keys


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested plain mappings key by key; later layers win.

    A table with a different `name` than the one below replaces it completely, since the keys of the lower table
    belong to another choice.

    >>> merge({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, above in layer.items():
            below: Any = merged.get(key)
            if _is_table(above):
                is_same_choice = _is_table(below) and above.get("name", below.get("name")) == below.get("name")
                merged[key] = merge(below, above) if is_same_choice else merge(above)
            else:
                merged[key] = above
    return merged


def differences(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The differences of two nested tables: key, first value, second value; None for a missing key.

    >>> list(differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3, "d": 4}}))
    [('a.c', 2, 3), ('a.d', None, 4)]
    """
    for key in sorted(one.keys() | other.keys()):
        left, right = one.get(key), other.get(key)
        if _is_table(left) and _is_table(right):
            yield from differences(left, right, f"{path}{key}.")
        elif left != right:
            yield f"{path}{key}", left, right


def _is_table(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def assignment(text: str) -> dict[str, Any]:
    """Parse one `a.b=c` from the command line; the value is TOML or a bare string.

    >>> assignment("model.d_model=64")
    {'model': {'d_model': 64}}
    >>> assignment("model.norm=post")
    {'model': {'norm': 'post'}}

    Raises:
        UsageError: the `=` is missing, a key is empty, or there are too many keys.
    """
    path, equals, literal = text.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys) or len(keys) > MOST_KEYS:
        raise UsageError("--set {text}: expected KEY=VALUE, for example --set model.d_model=64", text=text)
    try:
        value: Any = tomllib.loads(f"value = {literal}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):  # or nested so deeply that it is no value of any key
        value = literal.strip()
    for key in reversed(keys):
        value = {key: value}
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        UsageError: the file cannot be read, is not UTF-8, or is not TOML (names the line).
    """
    with readable(path):
        raw = read_capped(path, MOST_TOML)
    return parse_toml(raw, path)


def parse_toml(raw: bytes, where: Path) -> dict[str, Any]:
    """Parse the bytes of a TOML file.

    Raises:
        UsageError: they are not UTF-8, or not TOML (names the line).
    """
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except RecursionError:
        raise UsageError("{where}: nested too deeply", where=where) from None
    except UnicodeDecodeError as error:
        raise UsageError("{where}: not UTF-8 at byte {start}", where=where, start=error.start) from None
    except ValueError as error:
        raise UsageError("{where}: not TOML: {fault}", where=where, fault=error) from None
