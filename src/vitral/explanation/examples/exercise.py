"""Exercises: small random cases of attention as worked examples to fill in by hand."""

import json
import random
from dataclasses import dataclass
from typing import Annotated

from vitral.core.checked import Count, Natural, Within, checked
from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import _

LARGEST_SIDE = 8
"""Largest number of positions, columns and heads."""
ENTRIES = (-1, 0, 0, 0, 1, 1)
"""Matrix entries are drawn from these; small, so that products can be computed mentally."""


@checked(first=True)
@dataclass(frozen=True)
class Exercise:
    """The sizes of an exercise.

    Attributes:
        positions: number of tokens.
        d_model: width of the stream.
        num_heads: must divide d_model.
        mask: "causal" or "bidirectional".
        scale: "none", "sqrt" or "linear".
        seed: of the random numbers.
        decimals: digits after the point.
    """

    positions: Count = 3
    d_model: Count = 4
    num_heads: Count = 1
    mask: str = "causal"
    scale: str = "sqrt"
    seed: Natural = 1
    decimals: Annotated[int, Within(0, 12)] = 2

    def __post_init__(self) -> None:
        """Check the sizes.

        Raises:
            UsageError: a size out of range, or an unknown mask or scale.
        """
        for name in ("positions", "d_model", "num_heads"):
            if not 1 <= getattr(self, name) <= LARGEST_SIDE:
                raise UsageError(
                    "{name}: expected 1 to {largest_side}, not {value}: an exercise is solved by hand",
                    name=name,
                    largest_side=LARGEST_SIDE,
                    value=getattr(self, name),
                )
        for name, known in (("mask", ("causal", "bidirectional")), ("scale", ("none", "sqrt", "linear"))):
            if getattr(self, name) not in known:
                raise UsageError(f"{name}: {getattr(self, name)!r}, {nearest(getattr(self, name), known)}")
        if self.d_model % self.num_heads:
            raise UsageError(
                "num_heads: {num_heads} heads do not divide d_model = {d_model} into equal widths",
                num_heads=self.num_heads,
                d_model=self.d_model,
            )


@checked(first=True)
def exercise_text(exercise: Exercise, *, blanks: bool = True) -> str:
    """The exercise as the text of a worked example.

    Args:
        exercise: its sizes and seed.
        blanks: whether to write the numbers to compute as "?" under [claimed].
    """
    random_ = random.Random(f"tiny {exercise.seed}")
    width = exercise.d_model // exercise.num_heads

    def matrix(rows: int, columns: int) -> list[list[int]]:
        """Whole numbers; no row is all zeros."""
        drawn = [[random_.choice(ENTRIES) for _ in range(columns)] for _ in range(rows)]
        return [row if any(row) else [1, *row[1:]] for row in drawn]

    def heads(rows: int, columns: int) -> list:
        drawn = [matrix(rows, columns) for _ in range(exercise.num_heads)]
        return drawn if exercise.num_heads > 1 else drawn[0]

    lines = [
        f"title = {json.dumps(_('Exercise number {seed}', seed=exercise.seed), ensure_ascii=False)}",
        f'mask = "{exercise.mask}"',
        f'scale = "{exercise.scale}"',
        f"heads = {exercise.num_heads}",
        f"decimals = {exercise.decimals}",
        "",
        "[given]",
        f"x   = {matrix(exercise.positions, exercise.d_model)}",
        *(f"{name} = {heads(exercise.d_model, width)}" for name in ("w_q", "w_k", "w_v")),
    ]
    if exercise.num_heads > 1:
        lines.append(f"w_o = {matrix(exercise.d_model, exercise.d_model)}")
    if blanks:
        hint = _("Put your numbers in place of the question marks, then: vitral check THIS_FILE")
        lines += ["", f"# {hint}", "[claimed]"]
        shapes = dict.fromkeys("qkv", (exercise.positions, width))
        shapes |= dict.fromkeys(("scores", "scaled", "masked", "weights"), (exercise.positions, exercise.positions))
        shapes |= {"z": (exercise.positions, width)} if exercise.num_heads > 1 else {}
        for name, (rows, columns) in shapes.items():
            blank = [["?"] * columns for _ in range(rows)]
            lines.append(f"{name} = {_written([blank] * exercise.num_heads if exercise.num_heads > 1 else blank)}")
        lines.append(f"output = {_written([['?'] * exercise.d_model for _ in range(exercise.positions)])}")
    return "\n".join(lines) + "\n"


def _written(value: list) -> str:
    return str(value).replace("'", '"')
