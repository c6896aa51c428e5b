"""The n-gram baselines of a text as plain data, and the place of a loss among them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.language import N_, _

SAME = 0.0005
"""Nats per token in which two losses with three decimals may not differ."""
_NAMES = {1: N_("unigram"), 2: N_("bigram"), 3: N_("trigram")}


@dataclass(frozen=True)
class NgramBaselines:
    """Losses on the test split of n-gram models counted on the training split.

    Attributes:
        orders: order -> nats per token.
        test_bigram_entropy: the entropy of a test token given the previous one, by the test split's own counts, in
            nats: a lower bound for every model that sees only the last token.
        counted: number of counted training tokens; None if all were counted.
    """

    orders: dict[int, float]
    test_bigram_entropy: float
    counted: int | None = None

    def plain(self) -> dict[str, Any]:
        """As plain data; `from_plain(baselines.plain()) == baselines`."""
        return {
            "orders": {str(order): loss for order, loss in self.orders.items()},
            "test_bigram_entropy": self.test_bigram_entropy,
            **({} if self.counted is None else {"counted": self.counted}),
        }

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> "NgramBaselines":
        """The baselines from plain data.

        Raises:
            UsageError: the data is malformed.
        """
        try:
            orders = {int(order): float(loss) for order, loss in plain["orders"].items()}
            counted = None if plain.get("counted") is None else int(plain["counted"])
            return NgramBaselines(orders, float(plain["test_bigram_entropy"]), counted)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                "n-gram baselines: malformed ({kind}: {error})", kind=type(error).__name__, error=error
            ) from None


def baseline_name(order: int) -> str:
    """The usual name of an n-gram of this order.

    >>> [baseline_name(order) for order in (1, 2, 3, 4)]
    ['unigram', 'bigram', 'trigram', '4-gram']
    """
    return _(_NAMES[order]) if order in _NAMES else _("{order}-gram", order=order)


def rank_among_baselines(loss: float, orders: Mapping[int, float], problems: Sequence[str] = ()) -> str:
    """A loss beside those of the n-gram tables in words, to follow "the loss is …".

    Tables are sorted by loss, since on a small text a longer n-gram can be worse than a shorter one.

    Args:
        loss: in nats per token.
        orders: order -> nats per token.
        problems: of the text (`CorpusReport.loss_problems`), such as a leak; with one the comparison is void.

    >>> rank_among_baselines(2.1, {1: 3.2, 2: 2.5, 3: 1.9})
    'better than the bigram table (2.500), worse than the trigram table (1.900); lower is better'

    Raises:
        UsageError: the loss is NaN.
    """
    if math.isnan(loss):
        raise UsageError("n-gram baselines: the loss is not a number")
    if problems:
        return _("not comparable with the counting tables: the text has a problem (vitral corpus says which)")
    same = next((order for order, other in orders.items() if abs(loss - other) < SAME), None)
    if same is not None:
        return _("equal to the {ngram} table; lower is better", ngram=baseline_name(same))
    above, below = neighbours(loss, orders)
    sentence = N_(
        "better than the {higher} table ({above:.3f}), worse than the {lower} table ({below:.3f}); lower is better"
    )
    if below is None:
        sentence = N_("better than every counting table (best: {higher} {above:.3f}); lower is better")
    if above is None:
        sentence = N_("worse than every counting table (weakest: {lower} {below:.3f}); lower is better")
    losses = {"above": orders.get(above or 0), "below": orders.get(below or 0)}
    return _(sentence, higher=baseline_name(above or 0), lower=baseline_name(below or 0), **losses)


def neighbours(loss: float, orders: Mapping[int, float]) -> tuple[int | None, int | None]:
    """The orders of the n-gram baselines next to a loss: of the one above it, and of the one below or equal.

    Args:
        loss: in nats per token.
        orders: order -> nats per token.

    >>> neighbours(2.1, {1: 3.2, 2: 2.5, 3: 1.9}), neighbours(4.0, {1: 3.2})
    ((2, 3), (None, 1))
    """
    by_loss = sorted(orders, key=lambda order: (-orders[order], order))
    above = [order for order in by_loss if orders[order] > loss]
    below = [order for order in by_loss if orders[order] <= loss]
    return (above[-1] if above else None), (below[0] if below else None)
