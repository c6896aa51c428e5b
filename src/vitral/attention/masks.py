"""Masks: which keys a query may attend to.

A mask has one main method, `allowed(time, source)`, for `time` queries and `source` keys. The queries are the last
`time` of the `source` positions, so a cached step (one query, all keys so far) needs no special case. Masks compose
with `&` and `|`.

`Causal`, `Bidirectional`, `Prefix` and `Window` are also configuration, as is `ByLayer`, a list of them; `Padding` and
`Explicit` contain tensors.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from jaxtyping import Bool
from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, TypeAdapter, ValidationError
from torch import Tensor

from vitral.core.config import Config, nearest
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.core.parts import OwnPart, Part

PROBED = 257
"""Positions on which a mask of the user's is tried."""


class Mask(ABC):
    """Base class of masks, with the defaults that most of them share.

    Attributes:
        sees_itself: whether every query is guaranteed to see its own key, so that no row is fully masked.
    """

    sees_itself: ClassVar[bool] = False

    @abstractmethod
    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "*#any time source"]:
        """True where query i (of the last `time` positions) may attend to key j."""

    def joint_prefix(self) -> int | None:
        """Number of leading tokens that a cache must receive at once because they attend to each other.

        0 if the past never depends on the future; None if it always does, so that no cache is possible.
        """
        return 0

    def first_target(self) -> int | None:
        """The first position that cannot see its own next token; None if every position can."""
        return 0

    def of(self, layer: int) -> "Mask":
        """The mask of one block: this one, the same for every block."""
        return self

    def __and__(self, other: "Mask") -> "Mask":
        """The intersection: allowed by both."""
        return Combined(self, other, is_union=False)

    def __or__(self, other: "Mask") -> "Mask":
        """The union: allowed by either."""
        return Combined(self, other, is_union=True)


def _positions(time: int, source: int, device: torch.device | None) -> tuple[Tensor, Tensor]:
    """Query positions as a column, key positions as a row."""
    if isinstance(time, float) or isinstance(source, float):
        raise UsageError(
            "mask: expected whole numbers of queries and keys, not {time} and {source}", time=time, source=source
        )
    queries = torch.arange(source - time, source, device=device)
    return queries[:, None], torch.arange(source, device=device)[None, :]


class Causal(Config, Mask):
    """Each position sees itself and all earlier positions."""

    sees_itself: ClassVar[bool] = True

    name: Literal["causal"] = "causal"

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "time source"]:
        """Key j at or before query i."""
        query, key = _positions(time, source, device)
        return key <= query


class Timeless(Mask):
    """Base class of masks that need not hide what comes later."""

    def joint_prefix(self) -> int | None:
        """None: a new token may change the outputs of all earlier positions."""
        return None

    def first_target(self) -> int | None:
        """None: each position may see its own next token."""
        return None


class Bidirectional(Config, Timeless):
    """Every position sees every position (BERT, Devlin et al. 2019)."""

    sees_itself: ClassVar[bool] = True

    name: Literal["bidirectional"] = "bidirectional"

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "time source"]:
        """All true."""
        return torch.ones(time, source, dtype=torch.bool, device=device)


class Prefix(Config, Mask):
    """Prefix LM: the first `length` positions see each other, the rest is causal (Raffel et al. 2020)."""

    sees_itself: ClassVar[bool] = True

    name: Literal["prefix"] = "prefix"
    length: Annotated[int, Field(ge=1)]

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "time source"]:
        """Key j at or before query i, or inside the prefix."""
        query, key = _positions(time, source, device)
        return (key <= query) | (key < self.length)

    def joint_prefix(self) -> int | None:
        """The length of the prefix."""
        return self.length

    def first_target(self) -> int | None:
        """The last position of the prefix, which predicts the first token after it."""
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
class Padding(Timeless):
    """Padding keys are hidden from every query.

    Attributes:
        real: [batch, source], True where a key is a real token.
    """

    real: Bool[Tensor, "batch source"]

    def allowed(
        self, time: int, source: int, device: torch.device | None = None
    ) -> Bool[Tensor, "batch 1 #time source"]:
        """The real keys, the same for every head and query."""
        if self.real.dim() != 2 or self.real.shape[-1] != source:
            raise UsageError(
                "padding mask: shape {shape} is not [batch, {source}]", shape=tuple(self.real.shape), source=source
            )
        return self.real[:, None, None, :].expand(-1, 1, time, -1).to(device)


@dataclass(frozen=True)
class Explicit(Timeless):
    """Any boolean tensor that broadcasts to [batch, heads, time, source]; True means allowed."""

    tensor: Bool[Tensor, "*any time source"]

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "*any time source"]:
        """The tensor itself."""
        rows, columns = self.tensor.shape[-2:] if self.tensor.dim() >= 2 else (0, 0)
        if rows not in (1, time) or columns not in (1, source):
            raise UsageError(
                "mask: shape {shape} does not fit {time} queries and {source} keys",
                shape=tuple(self.tensor.shape),
                time=time,
                source=source,
            )
        return self.tensor.to(device).expand(*self.tensor.shape[:-2], time, source)


@dataclass(frozen=True)
class Combined(Mask):
    """The intersection of two masks, or their union."""

    first: Mask
    second: Mask
    is_union: bool

    @property
    def sees_itself(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether both do; of a union, one."""
        return (any if self.is_union else all)((self.first.sees_itself, self.second.sees_itself))

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "*any time source"]:
        """Allowed by both; of a union, by one."""
        first, second = (mask.allowed(time, source, device) for mask in (self.first, self.second))
        return first | second if self.is_union else first & second

    def joint_prefix(self) -> int | None:
        """The smaller of both: a position hidden by one mask stays hidden. Of a union, the larger."""
        return self._of_both(self.first.joint_prefix(), self.second.joint_prefix())

    def first_target(self) -> int | None:
        """As `joint_prefix`."""
        return self._of_both(self.first.first_target(), self.second.first_target())

    def _of_both(self, *counts: int | None) -> int | None:
        """One of two counts, where None means never."""
        known = [count for count in counts if count is not None]
        if self.is_union:
            return max(known) if len(known) == len(counts) else None
        return min(known, default=None)


_NAMES = ("causal", "bidirectional", "prefix", "window")
BY_LAYER = "by-layer"


class OwnMask(OwnPart, Mask):
    """A registered mask: a `Mask`, or a function (time, source) → boolean tensor [time, source].

    What a function does not say of itself is found by trying it: one that shows a later key allows no cache, and one
    that shows a next token allows no next-token loss.
    """

    kinds = ("mask",)
    built_in = (*_NAMES, BY_LAYER)

    @property
    def sees_itself(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """False: rows without a visible key are possible."""
        return False

    @property
    def mask(self) -> Mask:
        """The registered mask itself.

        Raises:
            UsageError: it is not registered, or wrong.
        """
        return _own_mask(self, self.part)

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "*#any time source"]:
        """As the registered mask."""
        return self.mask.allowed(time, source, device)

    def joint_prefix(self) -> int | None:
        """As the registered mask; 0 in a recorded configuration whose parts are not registered."""
        return 0 if self.registered is None else self.mask.joint_prefix()

    def first_target(self) -> int | None:
        """As the registered mask; 0 in a recorded configuration whose parts are not registered."""
        return 0 if self.registered is None else self.mask.first_target()


@dataclass(frozen=True)
class FunctionMask(Mask):
    """A mask of the user's that is a function.

    Attributes:
        function: (time, source) → boolean tensor; the queries are the last `time` positions.
        shows_later: whether a query sees a later key.
        shows_next: whether a query sees the next key, the target of its own prediction.
    """

    function: Callable[[int, int], Tensor]
    shows_later: bool = False
    shows_next: bool = False

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "*#any time source"]:
        """The function's tensor."""
        return self.function(time, source).to(device)

    def joint_prefix(self) -> int | None:
        """0, or None if a query sees a later key."""
        return None if self.shows_later else 0

    def first_target(self) -> int | None:
        """0, or None if a query sees its next token."""
        return None if self.shows_next else 0


@lru_cache(maxsize=64)
def _own_mask(own: OwnMask, part: Part) -> Mask:
    """The mask that a registered factory makes, tried on a few positions.

    Raises:
        UsageError: it is no mask, or its last rows are not those of a shorter call.
    """
    made = own.make()
    if not isinstance(made, Mask) and not callable(made):
        raise own.wrong(
            _("its factory returns {kind}, not a Mask or a function (time, source)", kind=type(made).__name__)
        )
    mask = made if isinstance(made, Mask) else FunctionMask(made)  # pyright: ignore[reportArgumentType]
    whole = _tried(own, mask, PROBED, PROBED)
    for time in (1, 100):
        if not torch.equal(_tried(own, mask, time, PROBED), whole[..., -time:, :]):
            raise own.wrong(
                _(
                    "its rows for {time} queries of {source} keys are not the last rows of the whole mask; the queries "
                    "are the last positions",
                    time=time,
                    source=PROBED,
                )
            )
    if isinstance(mask, FunctionMask):
        return FunctionMask(mask.function, bool(whole.triu(1).any()), bool(whole.diagonal(1, -2, -1).any()))
    return mask


def _tried(own: OwnMask, mask: Mask, time: int, source: int) -> Tensor:
    """The tensor of a user's mask.

    Raises:
        UsageError: the mask fails, or does not return a boolean tensor [time, source].
    """
    with own.tried():
        allowed: Any = mask.function(time, source) if isinstance(mask, FunctionMask) else mask.allowed(time, source)
    if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool or allowed.shape[-2:] != (time, source):
        given = tuple(allowed.shape) if isinstance(allowed, Tensor) else type(allowed).__name__
        raise own.wrong(
            _("it returns {given}, not a boolean tensor [{time}, {source}]", given=given, time=time, source=source)
        )
    return allowed


def _as_table(spec: Any) -> Any:
    """An own mask; else a bare name is the mask of that name with default values."""
    read = OwnMask.read(spec)
    return {"name": read} if isinstance(read, str) else read


def _built_in(spec: Any) -> Any:
    """A mask of a list.

    Raises:
        ValueError: it is one of the user's.
    """
    table = _as_table(spec)
    if isinstance(table, OwnMask):
        raise ValueError(_("{name!r} is a mask of your own; a list has Vitral's only", name=table.name))
    return table


class ByLayer(Config, Mask):
    """A mask for each block: the list is repeated over the blocks (GPT-Neo alternates causal and window).

    As one mask it allows what any block allows; `of` has the mask of one block.
    """

    sees_itself: ClassVar[bool] = True

    name: Literal["by-layer"] = BY_LAYER
    masks: Annotated[
        tuple[
            Annotated[
                Annotated[Causal | Bidirectional | Prefix | Window, Field(discriminator="name")],
                BeforeValidator(_built_in),
            ],
            ...,
        ],
        Field(min_length=1, strict=False),
    ]

    def of(self, layer: int) -> Mask:
        """The mask of one block, counted from 0."""
        return self.masks[layer % len(self.masks)]

    def allowed(self, time: int, source: int, device: torch.device | None = None) -> Bool[Tensor, "time source"]:
        """Allowed by the mask of any block."""
        return reduce(Mask.__or__, self.masks).allowed(time, source, device)

    def joint_prefix(self) -> int | None:
        """The largest of all blocks; None if it is None of one."""
        return reduce(Mask.__or__, self.masks).joint_prefix()

    def first_target(self) -> int | None:
        """The largest of all blocks; None if it is None of one."""
        return reduce(Mask.__or__, self.masks).first_target()


def _as_tables(spec: Any) -> Any:
    """A list is one mask for each block."""
    return {"name": BY_LAYER, "masks": cast("list[Any]", spec)} if isinstance(spec, list | tuple) else _as_table(spec)


def _shortest(mask: Any) -> Any:
    """A list without its repetitions; of equal masks, that mask."""
    if not isinstance(mask, ByLayer):
        return mask
    masks, count = mask.masks, len(mask.masks)
    period = next(size for size in range(1, count + 1) if count % size == 0 and masks == masks[:size] * (count // size))
    return masks[0] if period == 1 else ByLayer(masks=masks[:period])


_OneMask = Annotated[
    Annotated[Causal | Bidirectional | Prefix | Window, Field(discriminator="name")] | InstanceOf[OwnMask],
    BeforeValidator(_as_table),
]
_ADAPTER: TypeAdapter[Causal | Bidirectional | Prefix | Window | OwnMask] = TypeAdapter(_OneMask)
MaskConfig = Annotated[
    Annotated[Causal | Bidirectional | Prefix | Window | ByLayer, Field(discriminator="name")] | InstanceOf[OwnMask],
    BeforeValidator(_as_tables),
    AfterValidator(_shortest),
]


def as_mask(spec: "Mask | Bool[Tensor, '*any time source'] | str | Mapping[str, Any] | None") -> Mask:
    """The mask for a name, a table as in a configuration, a boolean tensor, a mask, or None (everything allowed).

    Raises:
        UsageError: the name is unknown, or the tensor is not boolean.
    """
    if spec is None:
        return Bidirectional()
    if isinstance(spec, Mask):
        return spec
    if isinstance(spec, Tensor):
        if spec.dtype != torch.bool:
            raise UsageError("mask: expected a boolean tensor (True means allowed), not {dtype}", dtype=spec.dtype)
        return Explicit(spec)
    try:
        return _ADAPTER.validate_python(spec)
    except ValidationError:
        if spec in ("prefix", "window"):
            raise UsageError(
                "mask {mask!r}: {mask} needs a number, as Prefix(length=8) or Window(size=8)", mask=spec
            ) from None
        raise UsageError("mask {mask!r}: {hint}", mask=spec, hint=nearest(str(spec), _NAMES)) from None
