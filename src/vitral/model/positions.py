"""Position encodings.

Each kind uses one of three places: a vector added to the token embeddings, a rotation of queries and keys, or a bias
added to the scaled scores. The other two do nothing.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.core.parts import own_module
from vitral.model.config import ModelConfig, OwnPositions
from vitral.model.settings import ROTARY, LinearScaling, Llama3Scaling, RotaryConfig


class Positions(nn.Module):
    """No position encoding; also the base class of all kinds, whose methods do nothing."""

    part = "positions"
    """The part of the model to which the learned numbers are counted."""
    formula = ""
    """Their count in the names of the configuration; empty: nothing is learned."""

    def embed(self, start: int, time: int) -> Float[Tensor, "time d_model"] | None:
        """The vectors added to the token embeddings at positions start … start + time - 1."""
        return None

    def rotate(self, x: Float[Tensor, "*batch time d_head"], start: int) -> Float[Tensor, "*batch time d_head"]:
        """Queries or keys at positions start …, rotated by position."""
        return x

    def bias(self, time: int, source: int) -> Float[Tensor, "heads time source"] | None:
        """The bias added to the scaled scores; the queries are the last `time` of `source` positions."""
        return None


class Learned(Positions):
    """One learned vector per position up to the context length (Radford et al. 2019)."""

    part, formula = "embedding", "context_length · d_model"

    def __init__(self, config: ModelConfig) -> None:
        """Create the table, [context_length, d_model]."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.context_length, config.d_model))

    def embed(self, start: int, time: int) -> Float[Tensor, "time d_model"]:
        """Rows of the table.

        Raises:
            UsageError: a position is past the end of the table.
        """
        if start + time > len(self.weight):
            raise UsageError(
                "model: position {position} asked for, but learned positions end at context_length = {context_length}",
                position=start + time,
                context_length=len(self.weight),
            )
        return self.weight[start : start + time]


class Sinusoidal(Positions):
    """Fixed sines and cosines (Vaswani et al. 2017, §3.5).

    PE(p, 2i) = sin(p / 10000^(2i/d_model)),  PE(p, 2i+1) = cos(p / 10000^(2i/d_model))
    """

    def __init__(self, config: ModelConfig) -> None:
        """Compute the table up to the context length."""
        super().__init__()
        self.register_buffer("table", sinusoids(config.context_length, config.d_model), persistent=False)

    table: Tensor

    def embed(self, start: int, time: int) -> Float[Tensor, "time d_model"]:
        """Rows of the table, extended beyond the context length if needed."""
        if start + time <= len(self.table):
            return self.table[start : start + time]
        return sinusoids(start + time, self.table.shape[1]).to(self.table)[start:]


class Rotary(Positions):
    """Rotation of queries and keys in pairs, by an angle proportional to position (Su et al. 2021, eq. 34).

    Pair i of w rotating features turns by p · base^(-2i/w), so q·k depends on positions only through their difference.
    Pairs are (i, i + w/2), or (2i, 2i + 1) if they are interleaved; features after the first w stay as they are.
    """

    def __init__(self, config: ModelConfig) -> None:
        """Compute the rotations up to the context length."""
        super().__init__()
        self.rotation = config.rotary or ROTARY
        self.register_buffer("turns", turns(0, config.context_length, config.d_head, self.rotation), persistent=False)
        width = self.rotation.width(config.d_head)
        is_roll = width == config.d_head and (self.rotation.pairing == "halves" or width == 2)
        partner = None if is_roll else partners(config.d_head, self.rotation)
        self.register_buffer("partner", partner, persistent=False)

    turns: Tensor
    partner: Tensor | None
    """Of each feature the other of its pair; None if it is half a head further, for all."""

    @property
    def frequencies(self) -> Float[Tensor, " half"]:
        """The rotation of each pair from one position to the next, in radians."""
        return frequencies(self.rotation.width(self.turns.shape[-1]), self.rotation)

    def rotate(self, x: Float[Tensor, "*batch time d_head"], start: int) -> Float[Tensor, "*batch time d_head"]:
        """(a, b) → (a cos φ - b sin φ, a sin φ + b cos φ)."""
        end, width = start + x.shape[-2], x.shape[-1]
        if isinstance(end, torch.SymInt):  # in a graph for any length a slice would make the whole table another case
            known = self.turns.index_select(1, torch.arange(start, end, device=x.device))
        elif end > self.turns.shape[1]:
            known = turns(start, end, width, self.rotation).to(self.turns)
        else:
            known = self.turns[:, start:end]
        cos, sin = known.to(x.dtype)
        return torch.addcmul(x * cos, self.swapped(x), sin)

    def swapped(self, x: Float[Tensor, "*any d_head"]) -> Float[Tensor, "*any d_head"]:
        """Every feature replaced by the other of its pair; features that stay are kept."""
        if self.partner is None:
            first, second = x.chunk(2, dim=-1)
            return torch.cat((second, first), dim=-1)
        return x.index_select(-1, self.partner)


class ALiBi(Positions):
    """A penalty proportional to distance, with a slope per head (Press et al. 2022): bias = -m_h |i - j|.

    Slopes m_h = 2^(-8h/heads), h = 1 … heads.
    """

    def __init__(self, config: ModelConfig) -> None:
        """Compute the slopes."""
        super().__init__()
        heads = torch.arange(1, config.num_heads + 1, dtype=torch.float32)
        self.register_buffer("slopes", 2.0 ** (-8.0 * heads / config.num_heads), persistent=False)

    slopes: Tensor

    def bias(self, time: int, source: int) -> Float[Tensor, "heads time source"]:
        """The penalties -m_h |i - j|."""
        return -self.slopes[:, None, None] * distances(time, source, self.slopes.device).abs()


class Relative(Positions):
    """One learned number per head and distance, added to the scores (Raffel et al. 2020, §2.1, without buckets).

    Distances beyond the context length use the outermost number.
    """

    formula = "num_heads · (2 context_length - 1)"

    def __init__(self, config: ModelConfig) -> None:
        """Create the table, [heads, 2 context_length - 1], initially zero."""
        super().__init__()
        self.reach = config.context_length - 1
        self.by_distance = nn.Parameter(torch.zeros(config.num_heads, 2 * self.reach + 1))

    def bias(self, time: int, source: int) -> Float[Tensor, "heads time source"]:
        """The table entry of each query-key distance."""
        distance = distances(time, source, self.by_distance.device).clamp(-self.reach, self.reach)
        return self.by_distance[:, distance + self.reach]


def frequencies(width: int, rotation: RotaryConfig = ROTARY) -> Float[Tensor, " half"]:
    """base^(-2i/width), i = 0 … width/2 - 1, scaled, in float64."""
    rates = rotation.base ** (-torch.arange(width // 2, dtype=torch.float64) / (width // 2))
    scaling = rotation.scaling
    if isinstance(scaling, LinearScaling):
        return rates / scaling.factor
    if isinstance(scaling, Llama3Scaling):
        made = scaling.original_context_length * rates / (2 * math.pi)  # turns within the original context
        low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
        kept = ((made - low) / (high - low)).clamp(0, 1)
        return rates * ((1 - kept) / scaling.factor + kept)
    return rates


def pairs(width: int, rotation: RotaryConfig) -> tuple[Int[Tensor, " half"], Int[Tensor, " half"]]:
    """The first and the second features of the pairs, of `width` that rotate."""
    if rotation.pairing == "halves":
        first, second = torch.arange(width).chunk(2)
    else:
        first, second = torch.arange(0, width, 2), torch.arange(1, width, 2)
    return first, second


def partners(d_head: int, rotation: RotaryConfig) -> Int[Tensor, " d_head"]:
    """Of each feature of a head the other of its pair; itself, if it stays."""
    first, second = pairs(rotation.width(d_head), rotation)
    partner = torch.arange(d_head)
    partner[first], partner[second] = second, first
    return partner


def turns(start: int, end: int, d_head: int, rotation: RotaryConfig = ROTARY) -> Float[Tensor, "2 time d_head"]:
    """The rotations of all pairs: (cos φ, cos φ) and (-sin φ, sin φ) at positions start … end - 1, in float64.

    They rotate (a, b) to (a, b) · (cos, cos) + (b, a) · (-sin, sin). Features that stay have 1 and 0.
    """
    width = rotation.width(d_head)
    first, second = pairs(width, rotation)
    angles = torch.outer(torch.arange(start, end, dtype=torch.float64), frequencies(width, rotation))
    cos, sin = angles.cos(), angles.sin()
    both = torch.zeros(2, end - start, d_head, dtype=torch.float64)
    both[0] = 1.0
    both[0][:, first], both[0][:, second] = cos, cos
    both[1][:, first], both[1][:, second] = -sin, sin
    return both


def sinusoids(length: int, width: int) -> Float[Tensor, "length width"]:
    """The table of sines (even columns) and cosines (odd columns).

    >>> [round(number, 4) for number in sinusoids(2, 2)[1].tolist()]  # sin 1 and cos 1
    [0.8415, 0.5403]
    """
    columns = torch.arange(width, dtype=torch.float64)
    rates = 10_000.0 ** (-(columns - columns % 2) / width)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), rates)
    return torch.where(columns % 2 == 0, angles.sin(), angles.cos())


def distances(time: int, source: int, device: torch.device) -> Int[Tensor, "time source"]:
    """Query position minus key position, the queries being the last `time` of `source` positions."""
    queries = torch.arange(source - time, source, device=device)
    return queries[:, None] - torch.arange(source, device=device)[None, :]


KINDS = {
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "rotary": Rotary,
    "alibi": ALiBi,
    "relative": Relative,
}


def build_positions(config: ModelConfig) -> Positions:
    """The configured position encoding."""
    own = config.positions
    if not isinstance(own, OwnPositions):
        kind = KINDS.get(own.name if isinstance(own, RotaryConfig) else own)
        return Positions() if kind is None else kind(config)
    made = own_module(own, own.make(config))
    if not isinstance(made, Positions):
        raise own.wrong(_("its factory returns {kind}, not vitral.model.Positions", kind=type(made).__name__))
    return made
