"""The functions of built-in operations that the language of expressions has no words for."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vitral.attention import scales, steps
from vitral.decoding.sampling import distribution, keep_min_p, keep_top_k, keep_top_p
from vitral.explanation.expressions.functions import Function, Settings


def hypotheses_of(table: Tensor, start: int, num_beams: int, length: int) -> list[tuple[tuple[int, ...], float]]:
    """The last hypotheses of a beam search in a bigram table, the best first: words and log-probability.

    Equal hypotheses are in the order of their indices, as in `beam_search`.
    """
    steps = distribution(table.log()).log().tolist()
    hypotheses: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for _ in range(length):
        grown = [
            ((*words, word), score + step)
            for words, score in hypotheses
            for word, step in enumerate(steps[words[-1] if words else start])
        ]
        hypotheses = sorted(grown, key=lambda hypothesis: (-hypothesis[1], hypothesis[0]))[:num_beams]
    return hypotheses


def _whole(settings: Settings) -> list[int]:
    return [setting or 0 for setting in settings]


def _path(arguments: Sequence[Tensor], settings: Settings) -> Tensor:
    start, num_beams, length = _whole(settings)
    return torch.tensor(hypotheses_of(arguments[0], start, num_beams, length)[0][0], dtype=torch.float64)


def _path_probability(arguments: Sequence[Tensor], settings: Settings) -> Tensor:
    start, num_beams, length = _whole(settings)
    return torch.tensor([math.exp(hypotheses_of(arguments[0], start, num_beams, length)[0][1])], dtype=torch.float64)


def _of_one(function: Callable[[Tensor], Tensor]) -> Function:
    return Function(lambda arguments, _: function(arguments[0]))


def _matched(arguments: Sequence[Tensor], _: Settings) -> Tensor:
    """Keys or values repeated, so that there are as many heads of them as of queries."""
    shared, queries = arguments
    return shared.repeat_interleave(queries.shape[-3] // shared.shape[-3], dim=-3)


def _filter(keep: Callable[[Tensor, float], Tensor]) -> Function:
    """Probabilities, zero where a filter drops the word; the filter's number is the second argument."""

    def compute(arguments: Sequence[Tensor], _: Settings) -> Tensor:
        shares, value = arguments
        kept = keep(shares.log().reshape(-1, shares.shape[-1]), float(value)).reshape(shares.shape)
        return shares.masked_fill(kept == -math.inf, 0.0)

    return Function(compute, 2, 2)


def _spread(arguments: Sequence[Tensor], _: Settings) -> Tensor:
    scores, allowed, usual = arguments
    return scales.spread_factor(scores, allowed != 0, float(usual))


def _largest(x: Tensor) -> Tensor:
    return (x == x.amax(dim=-1, keepdim=True)).double().argmax(dim=-1, keepdim=True).double()


BUILT_IN: dict[str, Function] = {
    "split head axis": _of_one(lambda x: x.unsqueeze(-3)),
    "without one head": _of_one(lambda x: x[0] if x.dim() == 3 and len(x) == 1 else x),
    "with axes": Function(lambda a, rank: a[0].reshape(*(1,) * ((rank[0] or 0) - a[0].dim()), *a[0].shape), settings=1),
    "row axis": _of_one(lambda x: x.unsqueeze(-2)),
    "last row": _of_one(lambda x: x[..., -1, :]),
    "chosen rows": Function(lambda arguments, rows: arguments[0][..., _whole(rows), :], settings=10**6),
    "chosen heads": Function(lambda arguments, heads: arguments[0][..., _whole(heads), :, :], settings=10**6),
    "interleaved heads": _of_one(lambda x: x.movedim(-3, -1).flatten(-2)),
    "first half": _of_one(lambda x: x.chunk(2, dim=-1)[0]),
    "second half": _of_one(lambda x: x.chunk(2, dim=-1)[1]),
    "first of pairs": _of_one(lambda x: x[..., 0::2]),
    "second of pairs": _of_one(lambda x: x[..., 1::2]),
    "pairs": Function(lambda arguments, _: torch.stack(tuple(arguments), dim=-1).flatten(-2), 2, 2),
    "with the rest": Function(lambda a, _: torch.cat((a[0], a[1][..., a[0].shape[-1] :]), dim=-1), 2, 2),
    "positions": _of_one(lambda x: torch.arange(x.shape[-2], dtype=x.dtype)[:, None]),
    "match heads": Function(_matched, 2, 2),
    "merge heads": _of_one(steps.merge_heads),
    "softmax of scores": _of_one(lambda x: steps.normalise(x) if x.dim() > 1 else steps.normalise(x[None])[0]),
    "spread factor": Function(_spread, 3, 3),
    "place of largest": _of_one(_largest),
    "keep top k": _filter(lambda logits, k: keep_top_k(logits, int(k))),
    "keep top p": _filter(keep_top_p),
    "keep min p": _filter(keep_min_p),
    "best path": Function(_path, settings=3),
    "best path probability": Function(_path_probability, settings=3),
}
"""By name. The names have spaces, so that no expression can contain them."""
