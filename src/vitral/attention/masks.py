"""Masks: which keys a query may see.

A mask answers one question, `allowed(time, source)`: for `time` queries and `source` keys, where the queries are
the last `time` of the `source` positions (so a cached step, one query against all keys so far, needs no word of
its own). Masks compose with `&` and `|`.

`Causal`, `Bidirectional`, `Prefix` and `Window` are configuration too; `Padding` and `Explicit` hold tensors.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Bool
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from torch import Tensor

from vitral.core.config import Config, nearest
from vitral.core.errors import UsageError


class Mask(ABC):
    """The protocol of masks, with the answers most of them share.

    Attributes:
        sees_itself: whether every query surely sees at least its own key, so that no row can be empty.
    """

    sees_itself: ClassVar[bool] = False

    @abstractmethod
    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "*#any time source"]:
        """True where query i (of the last `time` positions) may see key j."""

    def settled(self) -> int | None:
        """How many first tokens must be given to a cache at once, after which the past no longer changes.

        0 where the past never depends on the future; None where it always does, and no cache is possible.
        """
        return 0

    def first_target(self) -> int | None:
        """The first position whose next token it has not already seen; None where all have been seen."""
        return 0

    def __and__(self, other: "Mask") -> "Mask":
        """What both allow."""
        return Both(self, other)

    def __or__(self, other: "Mask") -> "Mask":
        """What either allows."""
        return Either(self, other)


def _positions(time: int, source: int, device: torch.device | None) -> tuple[Tensor, Tensor]:
    """Positions of the queries as a column and of the keys as a row."""
    queries = torch.arange(source - time, source, device=device)
    return queries[:, None], torch.arange(source, device=device)[None, :]


class Causal(Config, Mask):
    """Each position sees itself and what came before."""

    sees_itself: ClassVar[bool] = True

    name: Literal["causal"] = "causal"

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "time source"]:
        """Key j at or before query i."""
        query, key = _positions(time, source, device)
        return key <= query


class Bidirectional(Config, Mask):
    """Every position sees every position (BERT, Devlin et al. 2019)."""

    sees_itself: ClassVar[bool] = True

    name: Literal["bidirectional"] = "bidirectional"

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "time source"]:
        """Everything."""
        return torch.ones(time, source, dtype=torch.bool, device=device)

    def settled(self) -> int | None:
        """Never: every new token changes what all earlier positions saw."""
        return None

    def first_target(self) -> int | None:
        """None: each position has seen its own next token."""
        return None


class Prefix(Config, Mask):
    """The hybrid: the first `length` positions see one another both ways, the rest is causal (Raffel et al. 2020)."""

    sees_itself: ClassVar[bool] = True

    name: Literal["prefix"] = "prefix"
    length: Annotated[int, Field(ge=1)]

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "time source"]:
        """Key j at or before query i, or inside the prefix (which a query outside it has behind it)."""
        query, key = _positions(time, source, device)
        return (key <= query) | (key < self.length)

    def settled(self) -> int | None:
        """The prefix is read as a whole."""
        return self.length

    def first_target(self) -> int | None:
        """The prefix's last position predicts the first token after it."""
        return self.length - 1


class Window(Config, Mask):
    """A causal sliding window: each position sees itself and the `size` - 1 before it (Beltagy et al. 2020)."""

    sees_itself: ClassVar[bool] = True

    name: Literal["window"] = "window"
    size: Annotated[int, Field(ge=1)]

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "time source"]:
        """Key j at most `size` - 1 before query i and not after it."""
        query, key = _positions(time, source, device)
        return (key <= query) & (key > query - self.size)


@dataclass(frozen=True)
class Padding(Mask):
    """Keys that are padding are seen by nobody.

    Attributes:
        real: [batch, source], True where a key is a real token.
    """

    real: Bool[Tensor, "batch source"]

    def allowed(
        self, time: int, source: int, device: torch.device | None = None
    ) -> Bool[Tensor, "batch 1 #time source"]:
        """Real keys, for every head and query alike."""
        if self.real.dim() != 2 or self.real.shape[-1] != source:
            raise UsageError(f"padding mask: shape {tuple(self.real.shape)} is not [batch, {source}]")
        return self.real[:, None, None, :].expand(-1, 1, time, -1).to(device)

    def settled(self) -> int | None:
        """Never, by itself: it hides no future."""
        return None

    def first_target(self) -> int | None:
        """None, by itself: it hides no future."""
        return None


@dataclass(frozen=True)
class Explicit(Mask):
    """Any boolean tensor that broadcasts to [batch, heads, time, source]; True means allowed."""

    tensor: Bool[Tensor, "*any time source"]

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "*any time source"]:
        """The tensor itself."""
        rows, columns = self.tensor.shape[-2:] if self.tensor.dim() >= 2 else (0, 0)
        if rows not in (1, time) or columns not in (1, source):
            raise UsageError(f"mask: shape {tuple(self.tensor.shape)} does not fit {time} queries and {source} keys")
        return self.tensor.to(device).expand(*self.tensor.shape[:-2], time, source)

    def settled(self) -> int | None:
        """Unknown in general, so never."""
        return None

    def first_target(self) -> int | None:
        """Unknown in general, so None."""
        return None


@dataclass(frozen=True)
class Both(Mask):
    """What `first` and `second` both allow."""

    first: Mask
    second: Mask

    @property
    def sees_itself(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Where both do."""
        return self.first.sees_itself and self.second.sees_itself

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "*any time source"]:
        """The intersection."""
        return self.first.allowed(time, source, device) & self.second.allowed(time, source, device)

    def settled(self) -> int | None:
        """As soon as for either: what one hides stays hidden."""
        return _earlier(self.first.settled(), self.second.settled())

    def first_target(self) -> int | None:
        """As early as for either: what one hides stays hidden."""
        return _earlier(self.first.first_target(), self.second.first_target())


@dataclass(frozen=True)
class Either(Mask):
    """What `first` or `second` allows."""

    first: Mask
    second: Mask

    @property
    def sees_itself(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Where one does."""
        return self.first.sees_itself or self.second.sees_itself

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "*any time source"]:
        """The union."""
        return self.first.allowed(time, source, device) | self.second.allowed(time, source, device)

    def settled(self) -> int | None:
        """Once it is for both."""
        return _later(self.first.settled(), self.second.settled())

    def first_target(self) -> int | None:
        """Once it is for both."""
        return _later(self.first.first_target(), self.second.first_target())


def _earlier(first: int | None, second: int | None) -> int | None:
    """The smaller of two counts, where None means never."""
    known = [count for count in (first, second) if count is not None]
    return min(known) if known else None


def _later(first: int | None, second: int | None) -> int | None:
    """The larger of two counts, where None means never."""
    return None if first is None or second is None else max(first, second)


def _as_table(spec: Any) -> Any:
    """A bare name stands for the mask of that name with nothing else to say."""
    return {"name": spec} if isinstance(spec, str) else spec


MaskConfig = Annotated[
    Annotated[Causal | Bidirectional | Prefix | Window, Field(discriminator="name")], BeforeValidator(_as_table)
]

_NAMES = ("causal", "bidirectional", "prefix", "window")
_ADAPTER: TypeAdapter[Causal | Bidirectional | Prefix | Window] = TypeAdapter(MaskConfig)


def as_mask(spec: "Mask | Bool[Tensor, '*any time source'] | str | Mapping[str, Any] | None") -> Mask:
    """The mask meant by a name, a table as in a configuration, a boolean tensor, a mask, or None (everything allowed).

    Raises:
        UsageError: an unknown name, or a tensor that is not boolean.
    """
    if spec is None:
        return Bidirectional()
    if isinstance(spec, Mask):
        return spec
    if isinstance(spec, Tensor):
        if spec.dtype != torch.bool:
            raise UsageError(f"mask: expected a boolean tensor (True means allowed), not {spec.dtype}")
        return Explicit(spec)
    try:
        return _ADAPTER.validate_python(spec)
    except ValidationError:
        hint = f"{spec} needs a number, as Prefix(length=8) or Window(size=8)" if spec in ("prefix", "window") else ""
        raise UsageError(f"mask {spec!r}: {hint or nearest(str(spec), _NAMES)}") from None
