"""What a request may ask for by name, and how it is read off the values of a sentence.

- `NAME`: a named activation; `NAME@7` is one position, `NAME#2` one head;
- `lens.NAME`, `lens.NAME@7`: the logits read off a stream;
- `read.NAME`, `read.NAME@7`: the most probable token of these logits and its probability; `logits` can be read too;
- `pooled.NAME`: a map of attention in `SMALL` rows and columns, the largest number of each patch;
- `mean.NAME`, `mean.NAME@7`: the mean of the heads' maps;
- `brought.NAME`: of values (`attn.v`) and of their sums (`attn.z`), how long what each token brings through each head,
  or each head adds, is: ‖W_O v‖; NaN where the attention mixes its heads in another way;
- `rated`: of each token −ln p and its rank after those before it; NaN and 0 for the first.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.taps import Recorder
from vitral.inspection.edits import is_map
from vitral.model import Transformer

RATED, LOGITS = "rated", "logits"
Kind = Literal["value", "lens", "read", "rated", "pooled", "mean", "brought"]
KINDS: tuple[Kind, ...] = ("lens", "read", "pooled", "mean", "brought")
"""What a name begins with that is read off an activation."""
WHOLE = ("value", "mean", "lens", "read")
"""Kinds of which one position can be asked for."""
AT, OF_HEAD = "@", "#"
SMALL = 64
"""Rows and columns of a pooled map; `web/src/page/marks/thumbnails.tsx` draws as many."""
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
        head: one head; None for all.
    """

    own: str
    kind: Kind
    position: int | None = None
    head: int | None = None

    @classmethod
    def parse(cls, asked: str, time: int, known: Mapping[str, int], readable: Collection[str]) -> "Name":
        """The name as a request writes it.

        Args:
            asked: the name.
            time: tokens of the sentence.
            known: the number of heads of each activation by its name; 0 where it has none.
            readable: those that are as wide as the stream.

        Raises:
            UsageError: there is no such activation or position.
        """
        if asked == RATED:
            return cls(LOGITS, "rated")
        kinds: list[Kind] = [each for each in KINDS if asked.startswith(f"{each}.")]
        kind = kinds[0] if kinds else "value"
        given, of_head, which = asked.removeprefix(f"{kind}.").partition(OF_HEAD)
        own, at, written = given.partition(AT)
        there: Collection[str] = {
            "value": known,
            "lens": readable,
            "read": [*readable, LOGITS],
            "brought": [each for each in known if each.endswith((".attn.v", ".attn.z"))],
        }.get(kind) or [each for each in known if is_map(each)]
        if own not in there:
            raise UsageError("names: no activation is called {name!r}, {hint}", name=own, hint=nearest(own, there))
        position, head = _place(written), _place(which)
        if at and (position is None or position >= time or kind not in WHOLE):
            raise UsageError("names: {name!r}: the sentence has the positions 0 to {last}", name=asked, last=time - 1)
        if of_head and (head is None or head >= known.get(own, 0) or kind != "value"):
            raise UsageError(
                "names: {name!r}: {own} has {heads} heads, counted from 0", name=asked, own=own, heads=known.get(own, 0)
            )
        return cls(own, kind, position, head)

    @property
    def kept(self) -> str:
        """What of the activation is kept: itself, or what was made of it."""
        return f"{self.kind}.{self.own}" if self.kind in ("pooled", "mean") else self.own

    def numbers(self, time: int, width: int, vocabulary: int) -> int:
        """How many numbers it has in a sentence of so many tokens; the activation has `width` at each position."""
        rows = time if self.position is None else 1
        if self.kind in ("lens", "read", "rated"):
            return rows * (vocabulary if self.kind == "lens" else PAIR)
        if self.kind == "pooled":
            return width * min(time, SMALL) ** 2
        if self.kind == "mean" or self.head is not None:
            width = 1 if is_map(self.own) else width
        return rows * width * (time if is_map(self.own) else 1)

    def of(self, value: Tensor) -> Tensor:
        """The activation at the position, of the head."""
        chosen = value if self.head is None else value[:, self.head : self.head + 1]
        return chosen if self.position is None else chosen[..., self.position : self.position + 1, :]


def _place(written: str) -> int | None:
    return int(written) if written.isascii() and written.isdecimal() and len(written) < 10 else None


class Reducing(Recorder):
    """Keeps of maps what is asked for, so that none of a long sentence is kept whole."""

    def __init__(self, asked: Iterable[str]) -> None:
        """Keep these: `pooled.NAME` and `mean.NAME`."""
        self.rules: dict[str, list[str]] = {}
        for each in asked:
            kind, _, name = each.partition(".")
            self.rules.setdefault(name, []).append(kind)
        super().__init__(self.rules)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """Keep what is made of `value`."""
        for kind in self.rules.get(name, ()):
            self.kept[f"{kind}.{name}"] = pooled(value) if kind == "pooled" else value.mean(dim=1, keepdim=True)
        return value


def pooled(maps: Float[Tensor, "1 heads time source"]) -> Float[Tensor, "1 heads small small"]:
    """The largest number of each patch of maps, of at most `SMALL` rows and columns."""
    for axis in (2, 3):
        time = maps.shape[axis]
        if time > SMALL:
            starts = [-(-place * time // SMALL) for place in range(SMALL + 1)]
            maps = torch.stack(
                [maps.narrow(axis, one, end - one).amax(dim=axis) for one, end in pairwise(starts)], dim=axis
            )
    return maps


def brought(model: Transformer, name: str, values: Float[Tensor, "1 groups time width"]) -> Tensor:
    """‖W_O v‖ for the part of W_O that each head has, [1, heads, time]; NaN where there is no W_O."""
    heads, (_, groups, time, width) = model.config.num_heads, values.shape
    mixer = model.state_dict().get(name[:-1] + "out_proj.weight")
    if mixer is None or mixer.dim() != 2 or mixer.shape[1] != heads * width:
        return values.new_full((1, heads, time), torch.nan)
    each = values.repeat_interleave(heads // groups, dim=1)
    return torch.einsum("bhtw,dhw->bhtd", each, mixer.view(-1, heads, width)).norm(dim=-1)


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
        value = name.of(kept[name.kept])
        if name.kind in ("value", "pooled", "mean"):
            found[key] = value
        elif name.kind == "brought":
            found[key] = brought(model, name.own, value)
        elif name.kind == "rated":
            found[key] = rated(value, ids)
        elif name.own == LOGITS:
            found[key] = most_probable(value)
        else:
            streams[key] = value
    for kind, read in (("lens", lambda logits: logits), ("read", most_probable)):
        found |= _lens(model, {key: stream for key, stream in streams.items() if names[key].kind == kind}, read)
    return {key: found[key] for key in names}


def _lens(model: Transformer, streams: Mapping[str, Tensor], read: Callable[[Tensor], Tensor]) -> Mapping[str, Tensor]:
    """What is read off the logits of streams [1, rows, d_model], of many rows at once: each product reads the head."""
    if not streams:
        return {}
    rows = torch.cat(list(streams.values()), dim=1).split(max(1, MOST_NUMBERS // model.vocab_size), dim=1)
    made = torch.cat([read(model.unembed(model.final_norm(some))) for some in rows], dim=1)
    return dict(zip(streams, made.split([stream.shape[1] for stream in streams.values()], dim=1), strict=True))


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
