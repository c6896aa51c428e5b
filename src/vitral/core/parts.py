"""Parts that users write: a registry of factories by kind and name, and how a configuration names one.

A configuration names an own part like a part of Vitral: `"my-norm"`, or `{name = "my-norm", epsilon = 1e-6}` with
settings for its factory. A parsed configuration also contains the file that defines the part and its SHA-256, so that a
run seals both. Nothing that is read from a run or a study imports code: a part exists only if the user's program has
registered it, or if the user has named its file.
"""

import hashlib
import inspect
import json
import re
import runpy
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, cast, get_args

import tomli_w
from pydantic import Field, model_serializer

from vitral.core.config import Config, closest, nearest, shown
from vitral.core.errors import UsageError, VitralError, first_line
from vitral.core.language import N_, Message, _

if TYPE_CHECKING:
    from torch import nn

Kind = Literal["norm", "activation", "feed_forward", "positions", "mask", "scale", "optimizer"]
NAME = r"[a-z0-9][a-z0-9_.-]{0,63}"
CELL = "notebook"
"""The file of a part that no file defines; its source is not recorded."""

Factory = Callable[..., Any]
AnyConfig = TypeVar("AnyConfig", bound=Config)


class Part(NamedTuple):
    """A registered part.

    Attributes:
        kind: of part.
        name: by which configurations name it.
        factory: makes it.
        file: the name of the file that defines it, or `CELL`.
        sha256: of that file; of nothing if there is none.
    """

    kind: Kind
    name: str
    factory: Factory
    file: str
    sha256: str


_parts: dict[tuple[Kind, str], Part] = {}
_imported: dict[Path, Path] = {}
"""The imported files: the path that named each, by its absolute path."""
_importing: list[Path] = []


class OwnPart(Config):
    """An own part in a configuration; a subclass is one key of it.

    Attributes:
        name: under which it is registered.
        settings: keyword arguments of its factory, as plain data.
        file: the name of the file that defines it.
        sha256: of that file.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ()
    """The kinds of parts that the key accepts."""
    built_in: ClassVar[tuple[str, ...]] = ()
    """The names of Vitral's parts there."""

    name: Annotated[str, Field(pattern=f"^{NAME}$")]
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
        return self.named(self.name)

    @property
    def part(self) -> Part:
        """The registered part.

        Raises:
            UsageError: it is not registered; names the file that defines it.
        """
        part = self.registered
        if part is None:
            raise UsageError("{kind} {name!r}: {missing}", kind=self.kinds[0], name=self.name, missing=self.missing)
        return part

    @property
    def missing(self) -> Message:
        """The sentence that says that the part is not registered, and what to do."""
        sentence = N_(
            "needs the {kind} {name!r} of {file}, which is not registered; give --parts {file}, or in Python import "
            "that file first"
        )
        if self.file == CELL:
            sentence = N_("needs the {kind} {name!r}, which is not registered; run the notebook's cell that does")
        return sentence.format(kind=self.kinds[0], name=self.name, file=self.file)

    def make(self, *given: Any, **more: Any) -> Any:
        """Call the factory with these arguments and the settings.

        Raises:
            UsageError: it is not registered, or its factory failed.
        """
        with self.tried():
            return self.part.factory(*given, **more, **self.settings)

    def wrong(self, complaint: str) -> UsageError:
        """The error that says what is wrong with this part."""
        values = {"kind": self.kinds[0], "name": self.name, "file": self.file, "complaint": complaint}
        return UsageError("{kind} {name!r} of {file}: {complaint}", **values)

    @contextmanager
    def tried(self) -> Generator[None]:
        """Convert what code of this part raises inside the block to one line.

        Raises:
            UsageError: it failed.
        """
        try:
            yield
        except VitralError:
            raise
        except Exception as error:
            raise self.wrong(f"{type(error).__name__}: {first_line(error)}") from error

    @classmethod
    def named(cls, name: str) -> Part | None:
        """The registered part of this name; None if there is none."""
        return next((_parts[kind, name] for kind in cls.kinds if (kind, name) in _parts), None)

    @classmethod
    def read(cls, value: Any) -> Any:
        """A value of a configuration: an own part, if it names none of Vitral's; else unchanged.

        Raises:
            ValueError: it names an unknown part, or has wrong settings.
        """
        table: Any = {"name": value} if isinstance(value, str) else value
        if isinstance(value, OwnPart) or not isinstance(table, Mapping):
            return cast("Any", value)
        settings = dict(cast("Mapping[str, Any]", table))
        name = settings.pop("name", None)
        if not isinstance(name, str) or name in cls.built_in:
            return cast("Any", value)
        fields = {key: settings.pop(key) for key in cls.model_fields if key in settings and key != "settings"}
        if "sha256" not in fields:
            part = cls.named(name)
            if part is None:
                raise ValueError(cls._unknown(name))
            fields |= {"file": part.file, "sha256": part.sha256}
        if not _are_plain(settings):
            raise ValueError(_("{name}: expected settings of numbers, texts, lists or tables of them", name=name))
        return cls(name=name, settings=settings, **fields)

    @classmethod
    def choose(cls, value: Any) -> Any:
        """As `read`, for a key where Vitral's parts are bare names, or tables with a name only."""
        read = cls.read(value)
        if isinstance(read, Mapping) and (name := cast("Any", read).get("name")) in cls.built_in:
            if len(cast("Any", read)) > 1:
                raise ValueError(_("{name!r} has no settings", name=name))
            return name
        return cast("Any", read)

    @classmethod
    def _unknown(cls, name: str) -> str:
        known = [*cls.built_in, *(part.name for part in _parts.values() if part.kind in cls.kinds)]
        hint = closest(name, known) or _(
            "for a part of your own give --parts FILE.py, or in Python call vitral.register({kind!r}, …) first",
            kind=cls.kinds[0],
        )
        return _("{name} is not one of {known}; {hint}", name=shown(name), known=", ".join(known), hint=hint)


def register(kind: Kind, name: str, factory: Factory | None = None) -> Any:
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

    The file that defines it is recorded with its SHA-256. A part without a file, as in a cell of a notebook, is not:
    a warning says so. The last part of a name counts.

    Args:
        kind: of part.
        name: of small letters, digits and -_.
        factory: a function or class; without it, a decorator.

    Returns:
        The factory, or the decorator.

    Raises:
        UsageError: the name is of a part of Vitral.
    """
    if factory is None:
        return partial(register, kind, name)
    if kind not in get_args(Kind):
        raise UsageError("register: kind {kind!r}, {hint}", kind=kind, hint=nearest(str(kind), get_args(Kind)))
    if not re.fullmatch(NAME, name):
        raise UsageError(
            "register: {name} is not a name; use small letters, digits and -_. with at most 64 characters",
            name=shown(name),
        )
    key = next((one for one in OwnPart.__subclasses__() if kind in one.kinds), None)
    if key is not None and name in key.built_in:
        raise UsageError("register: {name!r} is a {kind} of Vitral; choose another name", name=name, kind=kind)
    part = Part(kind, name, factory, *_source(factory))
    for one in () if key is None else key.kinds:
        _parts.pop((one, name), None)
    if part.file == CELL:
        warnings.warn(
            _("{kind} {name!r}: no file defines it, so a run does not record its source", kind=kind, name=name),
            stacklevel=3,
        )
    _parts[kind, name] = part
    return factory


def _source(factory: Factory) -> tuple[str, str]:
    """The name and the SHA-256 of the file that defines a factory."""
    path = _importing[-1] if _importing else None
    if path is None:
        try:
            path = Path(inspect.getsourcefile(getattr(factory, "func", factory)) or CELL)
        except TypeError:
            path = Path(CELL)
    raw = path.read_bytes() if path.is_file() else b""
    return re.sub(r"[^\w.-]", "_", path.name)[:120] if raw else CELL, hashlib.sha256(raw).hexdigest()


def import_parts(path: Path) -> None:
    """Run a Python file of the user's, which registers parts; nothing is written beside it.

    Raises:
        UsageError: it cannot be read, fails, or registers nothing; in one line.
    """
    before = dict(_parts)
    _importing.append(path)
    try:
        runpy.run_path(str(path.absolute()), run_name=f"vitral_parts_{path.stem}")
    except VitralError:
        raise
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        raise UsageError("--parts {path}: {kind} {error}", path=path, kind=kind, error=first_line(error)) from error
    finally:
        _importing.pop()
    if before == _parts and path.absolute() not in _imported:
        raise UsageError(
            '--parts {path}: it registers no part; it needs lines such as vitral.register("norm", "my-norm", MyNorm)',
            path=path,
        )
    _imported.setdefault(path.absolute(), path)


def imported_files() -> dict[Path, Path]:
    """The files of parts imported in this process: the path that the user named, by the absolute path."""
    return dict(_imported)


def own_module(own: OwnPart, made: Any) -> "nn.Module":
    """The result of an own part's factory, if it is a module whose numbers are saved and move with the model.

    Raises:
        UsageError: it is no module, or has numbers that are neither parameters nor constants.
    """
    from torch import Tensor, nn

    if not isinstance(made, nn.Module):
        raise own.wrong(_("its factory returns {kind}, not an nn.Module", kind=type(made).__name__))
    parameters = dict(made.named_parameters())
    for name, value in parameters.items():
        if isinstance(value, nn.UninitializedParameter) or not value.is_floating_point():
            raise own.wrong(_("its parameter {name} is not a tensor of floating-point numbers", name=name))
    for name in (name for name in made.state_dict() if name not in parameters):
        raise own.wrong(
            _(
                "it would save {name}, which is not a parameter of its own; register a constant with "
                "register_buffer(…, persistent=False)",
                name=name,
            )
        )
    for where, part in cast("Iterator[tuple[str, object]]", made.named_modules()):
        for name, value in vars(part).items():
            held = cast("list[Any]", value) if isinstance(value, list | tuple) else [value]
            if any(isinstance(one, Tensor | nn.Module) for one in held):
                raise own.wrong(
                    _(
                        "its attribute {name} is neither saved nor moved with the model; make it an nn.Parameter, a "
                        "module (in a list: nn.ModuleList), or a buffer",
                        name=f"{where}.{name}".lstrip("."),
                    )
                )
    return made


def own_parts(config: Config) -> Iterator[OwnPart]:
    """The own parts that a configuration names, at any depth."""
    for _name, value in config:
        if isinstance(value, OwnPart):
            yield value
        elif isinstance(value, Config):
            yield from own_parts(value)


def changed_parts(config: Config, where: str) -> dict[str, str]:
    """The own parts of a configuration whose file is another now: its SHA-256 by `OwnPart.key`.

    Raises:
        UsageError: a part is not registered; says which file defines it.
    """
    changed: dict[str, str] = {}
    for own in own_parts(config):
        part = own.registered
        if part is None:
            raise UsageError("{where}: {missing}", where=where, missing=own.missing)
        if CELL not in (part.file, own.file) and part.sha256 != own.sha256:
            changed[own.key] = part.sha256
    return changed


def with_sources(config: AnyConfig, sources: Mapping[str, str]) -> AnyConfig:
    """The configuration with other hashes of the files of its own parts, by `OwnPart.key`."""
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
        if not ("sha256" in table and key in ("file", "sha256"))
    }


def _are_plain(settings: Mapping[str, Any]) -> bool:
    """Whether TOML and JSON can hold them."""
    try:
        tomli_w.dumps(settings)
        return json.loads(json.dumps(settings, allow_nan=False)) == settings
    except (TypeError, ValueError):
        return False
