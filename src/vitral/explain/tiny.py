"""Tiny cases made to be done by hand: whole numbers between −1 and 1, drawn with a seed, as a worked example's file."""

import random
from dataclasses import dataclass

from vitral.core.config import nearest
from vitral.core.errors import UsageError

LARGEST_SIDE = 8
"""Nobody works out a larger one by hand."""
ENTRIES = (-1, 0, 0, 0, 1, 1)
"""What matrices are drawn from; few and small, so that products stay in the head."""


@dataclass(frozen=True)
class Tiny:
    """The sizes of a case.

    Attributes:
        positions: tokens.
        d_model: width of the stream.
        num_heads: they must divide d_model.
        mask: "causal" or "bidirectional".
        scale: "none", "sqrt" or "linear".
        seed: of the numbers.
        decimals: digits to work with.
    """

    positions: int = 3
    d_model: int = 4
    num_heads: int = 1
    mask: str = "causal"
    scale: str = "sqrt"
    seed: int = 1
    decimals: int = 2

    def __post_init__(self) -> None:
        """Refuse sizes that cannot be.

        Raises:
            UsageError: naming the size.
        """
        for name in ("positions", "d_model", "num_heads"):
            if not 1 <= getattr(self, name) <= LARGEST_SIDE:
                raise UsageError(
                    f"{name}: expected 1 to {LARGEST_SIDE}, not {getattr(self, name)}: it is to be done by hand"
                )
        for name, known in (("mask", ("causal", "bidirectional")), ("scale", ("none", "sqrt", "linear"))):
            if getattr(self, name) not in known:
                raise UsageError(f"{name}: {getattr(self, name)!r}, {nearest(getattr(self, name), known)}")
        if self.d_model % self.num_heads:
            raise UsageError(
                f"num_heads: {self.num_heads} heads do not divide d_model = {self.d_model} into equal widths"
            )


def tiny_example(tiny: Tiny, *, exercise: bool = True) -> str:
    """The case as the text of a worked example.

    Args:
        tiny: its sizes and seed.
        exercise: write what is to be worked out as "?" under [claimed].
    """
    random_ = random.Random(f"tiny {tiny.seed}")
    width = tiny.d_model // tiny.num_heads

    def matrix(rows: int, columns: int) -> list[list[int]]:
        """Whole numbers, no row all zeros."""
        drawn = [[random_.choice(ENTRIES) for _ in range(columns)] for _ in range(rows)]
        return [row if any(row) else [1, *row[1:]] for row in drawn]

    def heads(rows: int, columns: int) -> list:
        drawn = [matrix(rows, columns) for _ in range(tiny.num_heads)]
        return drawn if tiny.num_heads > 1 else drawn[0]

    lines = [
        f'title = "A case to do by hand, number {tiny.seed}"',
        f'mask = "{tiny.mask}"',
        f'scale = "{tiny.scale}"',
        f"heads = {tiny.num_heads}",
        f"decimals = {tiny.decimals}",
        "",
        "[given]",
        f"x   = {matrix(tiny.positions, tiny.d_model)}",
        *(f"{name} = {heads(tiny.d_model, width)}" for name in ("w_q", "w_k", "w_v")),
    ]
    if tiny.num_heads > 1:
        lines.append(f"w_o = {matrix(tiny.d_model, tiny.d_model)}")
    if exercise:
        lines += ["", "# Put your numbers in place of the question marks, then: vitral check THIS_FILE", "[claimed]"]
        shapes = dict.fromkeys("qkv", (tiny.positions, width))
        shapes |= dict.fromkeys(("scores", "scaled", "masked", "weights"), (tiny.positions, tiny.positions))
        shapes |= {"z": (tiny.positions, width)} if tiny.num_heads > 1 else {}
        for name, (rows, columns) in shapes.items():
            blank = [["?"] * columns for _ in range(rows)]
            lines.append(f"{name} = {_written([blank] * tiny.num_heads if tiny.num_heads > 1 else blank)}")
        lines.append(f"output = {_written([['?'] * tiny.d_model for _ in range(tiny.positions)])}")
    return "\n".join(lines) + "\n"


def _written(value: list) -> str:
    return str(value).replace("'", '"')
