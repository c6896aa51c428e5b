"""Parts that users write: a registry of factories by kind and name, and how a configuration names one.

A configuration names an own part like a part of Vitral: `"my-norm"`, or `{name = "my-norm", epsilon = 1e-6}` with
settings for its factory. A parsed configuration also contains the file that defines the part and the SHA-256 of its
source, so that a run seals both. Nothing that is read from a run or a study imports code: a part exists only if the
user's program has registered it, or if the user has named its file.
"""

import functools
import hashlib
import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast, get_args, overload

from pydantic import Field, model_serializer

from vitral.core.checked import checked
from vitral.core.config import Config, nearest, shown
from vitral.core.errors import UsageError, VitralError
from vitral.core.language import _

Kind = Literal["norm", "activation", "feed_forward", "positions", "mask", "scale", "optimizer"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
CELL = "notebook"
"""The file of a part that is written in a cell of a notebook."""
SEALED = ("file", "sha256")
"""Keys of a named part that are not settings: they are filled in."""
MOST_SETTINGS = 10_000
"""Characters of a part's settings as JSON."""

Factory = Callable[..., Any]
AnyFactory = TypeVar("AnyFactory", bound=Factory)
AnyConfig = TypeVar("AnyConfig", bound=Config)


@dataclass(frozen=True)
class Part:
    """A registered part.

    Attributes:
        kind: of part; one of `KINDS`.
        name: by which configurations name it.
        factory: makes it.
        file: the name of the file that defines it; `CELL` for a notebook.
        sha256: of that file, or of the text of the cell.
    """

    kind: Kind
    name: str
    factory: Factory
    file: str
    sha256: str


_parts: dict[tuple[Kind, str], Part] = {}
_imported: dict[Path, Path] = {}
"""The imported files: the path that named each, by its absolute path."""
_importing: list[tuple[Path, list[Part]]] = []
"""Files that are being imported, with the parts that they have registered."""


class OwnPart(Config):
    """An own part in a configuration; a subclass is one key of it.

    Attributes:
        name: under which it is registered.
        settings: keyword arguments of its factory, as plain data.
        file: the name of the file that defines it.
        sha256: of the source.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ()
    """The kinds of parts that the key accepts."""
    built_in: ClassVar[tuple[str, ...]] = ()
    """The names of Vitral's parts there."""
    taken_later: ClassVar[tuple[str, ...]] = ()
    """Those that users could register before; an own part of such a name serves only runs that sealed it."""

    name: Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
    settings: dict[str, Any]
    file: Annotated[str, Field(max_length=120, pattern=r"^[\w.-]+$")]  # a counted \w takes 50 ms to compile
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

    def __hash__(self) -> int:
        """Parts that are equal as plain data have one hash."""
        return hash(json.dumps(self.plain(), sort_keys=True))

    @model_serializer
    def _as_table(self) -> dict[str, Any]:
        fields = {key: getattr(self, key) for key in type(self).model_fields if key not in ("name", "settings")}
        return {"name": self.name, **self.settings, **fields}

    @property
    def key(self) -> str:
        """Its kind and name, as in "norm/my-norm"."""
        return f"{self.kinds[0]}/{self.name}"

    @property
    def registered(self) -> Part | None:
        """The registered part of this name; None if there is none."""
        return next((_parts[kind, self.name] for kind in self.kinds if (kind, self.name) in _parts), None)

    @property
    def part(self) -> Part:
        """The registered part.

        Raises:
            UsageError: it is not registered; names the file that defines it.
        """
        found = self.registered
        if found is None:
            raise UsageError("{kind} {name!r}: {missing}", kind=self.kinds[0], name=self.name, missing=self.missing)
        return found

    @property
    def missing(self) -> str:
        """The sentence that says that the part is not registered, and what to do."""
        places = {"kind": self.kinds[0], "name": self.name, "file": self.file}
        if self.file == CELL:
            return _("needs the {kind} {name!r}, which is not registered; run the notebook's cell that does", **places)
        return _(
            "needs the {kind} {name!r} of {file}, which is not registered; give --parts {file}, or in Python import "
            "that file first",
            **places,
        )

    def make(self, *given: Any, **more: Any) -> Any:
        """Call the factory with these arguments and the settings.

        Raises:
            UsageError: it is not registered, or its factory failed.
        """
        part = self.part
        try:
            return part.factory(*given, **more, **self.settings)
        except VitralError:
            raise
        except Exception as error:
            raise self.wrong(
                _("its factory failed ({kind}: {error})", kind=type(error).__name__, error=_first_line(error))
            ) from error

    def wrong(self, complaint: str) -> UsageError:
        """The error that says what is wrong with this part."""
        places = {"kind": self.kinds[0], "name": self.name, "file": self.file, "complaint": complaint}
        return UsageError("{kind} {name!r} of {file}: {complaint}", **places)

    def failed(self, error: Exception) -> UsageError:
        """The error that says how code of this part failed."""
        return self.wrong(f"{type(error).__name__}: {_first_line(error)}")

    @classmethod
    def names(cls, name: str) -> bool:
        """Whether a registered part has this name."""
        return any((kind, name) in _parts for kind in cls.kinds)

    @classmethod
    def read(cls, value: Any) -> Any:
        """A value of a configuration: an own part, if it names none of Vitral's; else unchanged.

        Raises:
            ValueError: it names an unknown part, or has wrong settings.
        """
        if isinstance(value, OwnPart) or not isinstance(value, str | Mapping):
            return cast("Any", value)
        table: dict[str, Any] = {"name": value} if isinstance(value, str) else dict(cast("Mapping[str, Any]", value))
        name = table.pop("name", None)
        if not isinstance(name, str) or cls._is_vitrals(name, table):
            if isinstance(name, str) and cls.names(name):
                raise ValueError(
                    _("{name!r} is now a part of Vitral; register yours under another name to use it", name=name)
                )
            return cast("Any", value)
        fields = {key: table.pop(key) for key in cls.model_fields if key in table and key not in ("name", "settings")}
        if "sha256" not in fields:
            part = next((_parts[kind, name] for kind in cls.kinds if (kind, name) in _parts), None)
            if part is None:
                raise ValueError(cls._unknown(name))
            fields |= {"file": part.file, "sha256": part.sha256}
        _require_plain(name, table)
        return cls(name=name, settings=table, **fields)

    @classmethod
    def choose(cls, value: Any) -> Any:
        """As `read`, for a key where Vitral's parts are bare names.

        Raises:
            ValueError: it is neither a name nor a table.
        """
        read = cls.read(value)
        if isinstance(read, Mapping):
            table = cast("Mapping[str, Any]", read)
            if "name" not in table:
                raise ValueError(_("the table needs a name"))
            if table["name"] not in cls.built_in or len(table) > 1:
                raise ValueError(_("{name!r} has no settings", name=table["name"]))
            return table["name"]
        if not isinstance(read, str | OwnPart):
            raise ValueError(_("expected a name or a table, not {value}", value=shown(read)))
        return read

    @classmethod
    def _is_vitrals(cls, name: str, table: Mapping[str, Any]) -> bool:
        return name in cls.built_in and not (name in cls.taken_later and "sha256" in table)

    @classmethod
    def _unknown(cls, name: str) -> str:
        known = [*cls.built_in, *(part.name for part in _parts.values() if part.kind in cls.kinds)]
        hint = nearest(name, known)
        if hint.startswith("did"):
            return _("{name} is not one of {known}; {hint}", name=shown(name), known=", ".join(known), hint=hint)
        return _(
            "{name} is not one of {known}; for a part of your own give --parts FILE.py, or in Python call "
            "vitral.register({kind!r}, …) first",
            name=shown(name),
            known=", ".join(known),
            kind=cls.kinds[0],
        )


@overload
def register(kind: Kind, name: str, factory: AnyFactory, *, replace: bool = False) -> AnyFactory: ...
@overload
def register(
    kind: Kind, name: str, factory: None = None, *, replace: bool = False
) -> Callable[[AnyFactory], AnyFactory]: ...
@checked(first=True)
def register(kind: Kind, name: str, factory: Factory | None = None, *, replace: bool = False) -> Any:
    """Register a part of your own, by which configurations and studies may name it like one of Vitral's.

    A factory has the arguments of the built-in part, and the settings of the configuration as keyword arguments
    (`docs/own-parts.md`):

        norm           d_model → nn.Module, [batch, time, d_model] → the same
        activation     nothing → function or nn.Module, applied to the hidden layer
        feed_forward   ModelConfig → nn.Module, [batch, time, d_model] → the same
        positions      ModelConfig → `vitral.model.Positions`
        mask           nothing → `vitral.attention.Mask`, or a function (time, source) → boolean tensor
        scale          num_heads, d_head → number, or nn.Module that returns a number or a tensor [heads, 1, 1]
        optimizer      list of parameters, learning_rate=… → torch.optim.Optimizer

    Args:
        kind: of part.
        name: of small letters, digits and -_.
        factory: a function or class written in a file or in a cell of a notebook; without it, a decorator.
        replace: whether to replace a part of this name whose source is another.

    Returns:
        The factory, or the decorator.

    Raises:
        UsageError: the name is of a part of Vitral or of another source, or the factory has no source.
    """
    if factory is None:
        return functools.partial(register, kind, name, replace=replace)
    if not NAME.fullmatch(name):
        raise UsageError(
            "register: {name} is not a name; use small letters, digits and -_. with at most 64 characters",
            name=shown(name),
        )
    places = _places(kind)
    if any(name in place.built_in and name not in place.taken_later for place in places):
        raise UsageError("register: {name!r} is a {kind} of Vitral; choose another name", name=name, kind=kind)
    file, sha256 = _source(kind, name, factory)
    there = next((_parts[other, name] for other in _same_place(kind) if (other, name) in _parts), None)
    if there is not None and (there.kind, there.sha256) != (kind, sha256) and not replace:
        raise UsageError(
            "register: the {kind} {name!r} of {file} is registered already, with another source; choose another name, "
            "or give replace=True",
            kind=there.kind,
            name=name,
            file=there.file,
        )
    if there is not None:
        del _parts[there.kind, name]
    _parts[kind, name] = part = Part(kind, name, factory, file, sha256)
    for _path, found in _importing:
        found.append(part)
    return factory


def registered_parts() -> list[Part]:
    """All registered parts, by kind and name."""
    return sorted(_parts.values(), key=lambda part: (KINDS.index(part.kind), part.name))


@checked(first=True)
def import_parts(path: Path) -> list[Part]:
    """Import a Python file of the user's, which registers parts; nothing is written beside it.

    Returns:
        The registered parts of the file.

    Raises:
        UsageError: it cannot be read, fails, or registers nothing; in one line.
    """
    path = Path(path)
    name = f"vitral_parts_{hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]}"
    loader = _UncachedLoader(name, os.fspath(path.absolute()))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    found: list[Part] = []
    _importing.append((path, found))
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        _restore(name, before)
        if isinstance(error, VitralError):
            raise
        if isinstance(error, OSError) and error.filename == loader.path:
            raise UsageError("--parts {path}: cannot be read ({error})", path=path, error=error.strerror) from None
        raise UsageError(
            "--parts {path}: {kind} {error}", path=path, kind=type(error).__name__, error=_first_line(error)
        ) from error
    finally:
        _importing.pop()
    if not found:
        _restore(name, before)
        raise UsageError(
            '--parts {path}: it registers no part; it needs lines such as vitral.register("norm", "my-norm", MyNorm)',
            path=path,
        )
    _imported.setdefault(Path(loader.path), path)
    return found


def imported_files() -> dict[Path, Path]:
    """The files of parts imported in this process: the path that the user named, by the absolute path."""
    return dict(_imported)


def own_parts(config: Config) -> Iterator[OwnPart]:
    """The own parts that a configuration names, at any depth."""
    for _name, value in config:
        if isinstance(value, OwnPart):
            yield value
        elif isinstance(value, Config):
            yield from own_parts(value)


def changed_parts(config: Config, where: str) -> dict[str, str]:
    """The own parts of a configuration whose source is another now: the new hash by `OwnPart.key`.

    Raises:
        UsageError: a part is not registered; says which file defines it.
    """
    changed: dict[str, str] = {}
    for own in own_parts(config):
        part = own.registered
        if part is None:
            raise UsageError("{where}: {missing}", where=where, missing=own.missing)
        if part.sha256 != own.sha256:
            changed[own.key] = part.sha256
    return changed


def with_sources(config: AnyConfig, sources: Mapping[str, str]) -> AnyConfig:
    """The configuration with other hashes of the sources of its own parts, by `OwnPart.key`."""
    changes: dict[str, Any] = {}
    for name, value in config:
        if isinstance(value, OwnPart) and value.key in sources:
            changes[name] = value.model_copy(update={"sha256": sources[value.key]})
        elif isinstance(value, Config):
            changes[name] = with_sources(value, sources)
    return config.model_copy(update=changes)


def without_sources(table: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as plain data, whose own parts are those that are registered now."""
    return {
        key: without_sources(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if not ("sha256" in table and key in SEALED)
    }


class _UncachedLoader(SourceFileLoader):
    """Compiles the file as it is now, and writes no bytecode beside it."""

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self.get_data(self.path), self.path)


def _restore(name: str, before: Any) -> None:
    if before is None:
        sys.modules.pop(name, None)
    else:
        sys.modules[name] = before


def _places(kind: Kind) -> list[type[OwnPart]]:
    return [place for place in OwnPart.__subclasses__() if kind in place.kinds]


def _same_place(kind: Kind) -> tuple[Kind, ...]:
    """The kinds that one key of the configuration names together with this one."""
    return next((place.kinds for place in _places(kind)), (kind,))


def _source(kind: Kind, name: str, factory: Factory) -> tuple[str, str]:
    """The name of the file that defines a factory, and the SHA-256 of its source."""
    target: Any = inspect.unwrap(factory)
    while isinstance(target, functools.partial):
        target = inspect.unwrap(cast("functools.partial[Any]", target).func)
    if not (inspect.isclass(target) or inspect.isroutine(target)):
        target = cast("Any", type(target))
    # A class in a cell of a notebook has no file; its methods have one.
    inside = [one for one in vars(target).values() if inspect.isfunction(one)] if inspect.isclass(target) else []
    for each in (target, *inside):
        with suppress(OSError, TypeError):
            path = inspect.getsourcefile(each)
            if path is not None and os.path.isfile(path):
                raw, file = Path(path).read_bytes(), Path(path).name
            else:
                raw, file = "".join(inspect.findsource(each)[0]).encode(), CELL
            break
    else:
        raise UsageError(
            "register: {kind} {name!r} has no source that could be recorded; write it in a file or in a cell of a "
            "notebook",
            kind=kind,
            name=name,
        )
    if _importing:
        file = _importing[-1][0].name
    return re.sub(r"[^\w.-]", "_", file)[:120], hashlib.sha256(raw).hexdigest()


def _require_plain(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse settings that a configuration cannot contain.

    Raises:
        ValueError: names the setting.
    """
    for key, value in settings.items():
        if not key.isidentifier() or not _is_plain(value):
            raise ValueError(
                _(
                    "{name}: the setting {key} is {value}; expected numbers, texts, lists or tables of them",
                    name=name,
                    key=shown(key),
                    value=shown(value),
                )
            )
    if len(json.dumps(settings)) > MOST_SETTINGS:
        raise ValueError(_("{name}: its settings are too long", name=name))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, cast("list[Any]", value)))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(one) for key, one in cast("dict[Any, Any]", value).items())
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
