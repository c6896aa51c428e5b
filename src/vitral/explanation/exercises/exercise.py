"""The kinds of exercises and their sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from vitral.core.config import Config
from vitral.core.errors import UsageError
from vitral.core.language import N_

LARGEST_SIDE = 8
"""Largest number of positions, columns and heads: an exercise is solved by hand."""
Side = Annotated[int, Field(ge=1, le=LARGEST_SIDE)]


@dataclass(frozen=True)
class Kind:
    """A kind of exercise.

    Attributes:
        title: of its exercises.
        sizes: the fields of `Exercise` that it has, besides seed and decimals.
        usual: their values where they differ from those of `Exercise`.
    """

    title: str
    sizes: tuple[str, ...]
    usual: Mapping[str, Any] = field(default_factory=dict)


ALL_SIZES = ("positions", "d_model", "num_heads", "mask", "scale")
KINDS = {
    "attention": Kind(N_("One head of attention"), ALL_SIZES),
    "multi-head": Kind(N_("Several heads of attention"), ALL_SIZES, {"num_heads": 2, "scale": "linear"}),
    "block": Kind(N_("A pre-norm block"), ("positions", "d_model", "mask", "scale"), {"positions": 2}),
    "positions": Kind(N_("Positions as sines and cosines"), ("positions", "d_model")),
    "choice": Kind(N_("The choice of the next token"), ()),
    "loss": Kind(N_("Loss and backward pass"), ()),
    "cross-attention": Kind(N_("Cross-attention"), ("positions", "d_model", "scale"), {"positions": 2}),
    "difference": Kind(N_("A difference over seeds"), ()),
}
"""The kinds of exercises by name."""


class Exercise(Config):
    """The kind and the sizes of an exercise.

    Attributes:
        positions: number of tokens.
        d_model: width of the stream.
        num_heads: must divide d_model.
        mask: "causal" or "bidirectional".
        scale: "none", "sqrt" or "linear".
        seed: of the random numbers.
        decimals: digits after the point.
        kind: a name of `KINDS`.
    """

    positions: Side = 3
    d_model: Side = 4
    num_heads: Side = 1
    mask: Literal["causal", "bidirectional"] = "causal"
    scale: Literal["none", "sqrt", "linear"] = "sqrt"
    seed: int = 1
    decimals: int = 2
    kind: Literal[
        "attention", "multi-head", "block", "positions", "choice", "loss", "cross-attention", "difference"
    ] = "attention"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.d_model % self.num_heads:
            raise UsageError(
                "num_heads: {num_heads} heads do not divide d_model = {d_model} into equal widths",
                num_heads=self.num_heads,
                d_model=self.d_model,
            )
        if self.kind in ("block", "positions") and self.d_model % 2:
            raise UsageError(
                "d_model: {d_model} is odd; an exercise of the kind {kind} needs an even width",
                d_model=self.d_model,
                kind=self.kind,
            )
        return self

    @property
    def name(self) -> str:
        """The name of its files, as attention-7."""
        return f"{self.kind}-{self.seed}"


def exercise_of(kind: str | None = None, **sizes: Any) -> Exercise:
    """An exercise with the usual sizes of its kind, where no others are given.

    Args:
        kind: a name of `KINDS`; attention if None.
        sizes: fields of `Exercise`; None for the usual one.

    Raises:
        UsageError: an unknown kind, or a size that the kind does not have.
    """
    given = {name: value for name, value in sizes.items() if value is not None}
    usual = KINDS.get(kind or "attention", KINDS["attention"])
    for name in given:
        if name in ALL_SIZES and name not in usual.sizes:
            raise UsageError("exercise: the kind {kind} has no size {name}; leave it out", kind=kind, name=name)
    return Exercise.parse({**usual.usual, **given, "kind": kind or "attention"}, "exercise")
