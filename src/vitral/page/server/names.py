"""What a request may ask for by name, and how it is read off the values of a sentence.

- `NAME`: a named activation; `NAME@7` is one position;
- `lens.NAME`, `lens.NAME@7`: the logits read off a stream;
- `read.NAME`, `read.NAME@7`: the most probable token of these logits and its probability; `logits` can be read too;
- `rated`: of each token −ln p and its rank after those before it; NaN and 0 for the first.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.config import nearest
from vitral.core.edits import BETWEEN_POSITIONS
from vitral.core.errors import UsageError
from vitral.model import Transformer

LENS, READ, RATED, LOGITS = "lens.", "read.", "rated", "logits"
AT = "@"
MOST_NUMBERS = 1 << 24
"""Logits of the lens that are computed at once."""
PAIR = 2
"""Numbers of a reading: a token and its probability, or a loss and a rank."""


@dataclass(frozen=True)
class Name:
    """A value that is asked for.

    Attributes:
        own: the activation that it is read off.
        kind: as the activation is, its logits, or a reading.
        position: one position; None for all.
    """

    own: str
    kind: Literal["value", "lens", "read", "rated"]
    position: int | None

    @classmethod
    def parse(cls, asked: str, time: int, known: Collection[str], readable: Collection[str]) -> "Name":
        """The name as a request writes it.

        Args:
            asked: the name.
            time: tokens of the sentence.
            known: names of activations.
            readable: those that are as wide as the stream.

        Raises:
            UsageError: there is no such activation or position.
        """
        if asked == RATED:
            return cls(LOGITS, "rated", None)
        kind = "lens" if asked.startswith(LENS) else "read" if asked.startswith(READ) else "value"
        own, at, written = asked.removeprefix(LENS if kind == "lens" else READ if kind == "read" else "").partition(AT)
        there = known if kind == "value" else [*readable, LOGITS] if kind == "read" else readable
        if own not in there:
            raise UsageError("names: no activation is called {name!r}, {hint}", name=own, hint=nearest(own, there))
        position = int(written) if written.isascii() and written.isdecimal() and len(written) < 10 else None
        if at and (position is None or position >= time):
            raise UsageError("names: {name!r}: the sentence has the positions 0 to {last}", name=asked, last=time - 1)
        return cls(own, kind, position)

    def numbers(self, time: int, width: int, vocabulary: int) -> int:
        """How many numbers it has in a sentence of so many tokens; the activation has `width` at each position."""
        rows = time if self.position is None else 1
        if self.kind != "value":
            return rows * (vocabulary if self.kind == "lens" else PAIR)
        is_map = self.own.endswith(tuple(f".attn.{step}" for step in BETWEEN_POSITIONS))
        return rows * width * (time if is_map else 1)

    def of(self, value: Tensor) -> Tensor:
        """The activation at the position."""
        return value if self.position is None else value[..., self.position : self.position + 1, :]


@torch.inference_mode()
def read_off(
    model: Transformer, names: Mapping[str, Name], kept: Mapping[str, Tensor], ids: Sequence[int]
) -> dict[str, Tensor]:
    """The values of names, from the activations of a sentence.

    Args:
        model: whose head reads streams.
        names: what is asked for.
        kept: the activations that the names are read off.
        ids: the sentence.
    """
    found: dict[str, Tensor] = {}
    streams: dict[str, Tensor] = {}
    for key, name in names.items():
        value = name.of(kept[name.own])
        if name.kind == "value":
            found[key] = value
        elif name.kind == "rated":
            found[key] = rated(value, ids)
        elif name.own == LOGITS:
            found[key] = most_probable(value)
        else:
            streams[key] = value
    for key, logits in _lens(model, streams):
        found[key] = logits if names[key].kind == "lens" else most_probable(logits)
    return {key: found[key] for key in names}


def _lens(model: Transformer, streams: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The logits of each stream [1, rows, d_model], of several at once: every product reads the whole head."""
    most = max(1, MOST_NUMBERS // model.vocab_size)
    for group in _groups(streams, most):
        rows = [streams[key].shape[1] for key in group]
        logits = model.unembed(model.final_norm(torch.cat([streams[key] for key in group], dim=1)))
        yield from zip(group, logits.split(rows, dim=1), strict=True)


def _groups(streams: Mapping[str, Tensor], most: int) -> Iterable[list[str]]:
    """Keys in groups of at most so many rows, or of one."""
    group: list[str] = []
    rows = 0
    for key, stream in streams.items():
        if group and rows + stream.shape[1] > most:
            yield group
            group, rows = [], 0
        group.append(key)
        rows += stream.shape[1]
    if group:
        yield group


def most_probable(logits: Float[Tensor, "1 time vocab"]) -> Float[Tensor, "1 time 2"]:
    """At each position the most probable token and its probability."""
    most, token = logits.max(dim=-1)
    return torch.stack([token.to(logits.dtype), (most - logits.logsumexp(dim=-1)).exp()], dim=-1)


def rated(logits: Float[Tensor, "1 time vocab"], ids: Sequence[int]) -> Float[Tensor, "1 time 2"]:
    """Of each token −ln p and its rank, 1 the most probable, of equals the lower id, after the tokens before it."""
    found = logits.new_zeros(1, len(ids), PAIR)
    found[0, 0, 0] = torch.nan
    if len(ids) > 1:
        told: Int[Tensor, " time"] = torch.tensor(ids[1:], device=logits.device)
        rows = logits[0, :-1]
        own = rows.gather(1, told[:, None])
        above, equal = torch.count_nonzero(rows > own, dim=-1), rows == own
        if torch.count_nonzero(equal) > len(told):
            before = torch.arange(rows.shape[1], device=rows.device)[None] < told[:, None]
            above = above + torch.count_nonzero(equal & before, dim=-1)
        found[0, 1:, 0] = rows.logsumexp(dim=-1) - own[:, 0]
        found[0, 1:, 1] = 1 + above
    return found
