"""Slips at either end: positions, the choice of a word, the loss."""

from collections.abc import Callable
from decimal import Decimal

from students.paper import Paper
from students.pen import ZERO, Value
from students.slips import need, slip

# The choice of a word.


@slip("greedy-second", "greedy")
def greedy_second(paper: Paper, step: str) -> Value:
    return [[[Decimal(paper.ranked()[1])]]]


@slip("temperature-multiplied", "temperature")
def temperature_multiplied(paper: Paper, step: str) -> Value:
    return [[paper.warmed(1 / Decimal(step.rpartition("_")[2]))]]


@slip("temperature-not-normalised", "temperature")
def temperature_not_normalised(paper: Paper, step: str) -> Value:
    return [[[share ** (1 / Decimal(step.rpartition("_")[2])) if share else ZERO for share in paper.last]]]


@slip("temperature-divides-probabilities", "temperature")
def temperature_of_probabilities(paper: Paper, step: str) -> Value:
    return [[paper.pen.softmax([share / Decimal(step.rpartition("_")[2]) for share in paper.last])]]


@slip("filter-not-renormalised", "top_k", "top_p")
def not_renormalised(paper: Paper, step: str) -> Value:
    rule, _, number = step.rpartition("_")
    return [[paper.kept(rule, Decimal(number))]]


def filter_by(name: str, rule: str, change: int) -> None:
    """A slip that keeps one word too many or too few."""

    @slip(name, rule)
    def make(paper: Paper, step: str) -> Value:
        return [[paper.filtered(rule, Decimal(step.rpartition("_")[2]), change)]]


filter_by("top_k-one-fewer", "top_k", -1)
filter_by("top_k-one-more", "top_k", 1)
filter_by("top_p-one-fewer", "top_p", -1)
filter_by("top_p-one-more", "top_p", 1)

# Positions.


def position_as(name: str, **options: int) -> None:
    """A slip in the sines and cosines."""

    @slip(name, "position_embedding")
    def make(paper: Paper, step: str) -> Value:
        [tokens] = paper.have["token_embedding"]
        return [paper.sines(len(tokens), len(tokens[0]), **options)]  # type: ignore[arg-type]


position_as("position-from-1", start=1)
position_as("position-sine-cosine", swap=True)
position_as("position-exponent", single=True)
position_as("position-degrees", degrees=True)


@slip("position-halves", "position_embedding")
def position_halves(paper: Paper, step: str) -> Value:
    [rows] = paper.own(step)
    need(len(rows[0]) > 2)
    return [[[*row[::2], *row[1::2]] for row in rows]]


@slip("position-not-added", "x")
def position_not_added(paper: Paper, step: str) -> Value:
    return paper.have["token_embedding"]


# The loss.


def loss_as(name: str, function: Callable[[Paper, Decimal], Decimal]) -> None:
    """A slip in −log p."""

    @slip(name, "losses")
    def make(paper: Paper, step: str) -> Value:
        return [[[function(paper, loss) for loss in paper.own(step)[0][0]]]]


loss_as("loss-log10", lambda paper, loss: loss / Decimal(10).ln())
loss_as("loss-log2", lambda paper, loss: loss / Decimal(2).ln())
loss_as("loss-sign", lambda paper, loss: -loss)
loss_as("loss-no-log", lambda paper, loss: (-loss).exp())


@slip("loss-of-logits", "losses")
def loss_of_logits(paper: Paper, step: str) -> Value:
    chosen = zip(paper.have["logits"][0], paper.problem.settings["targets"], strict=True)
    return [[[-row[target] for row, target in chosen]]]


@slip("loss-target-shifted", "losses")
def loss_target_shifted(paper: Paper, step: str) -> Value:
    targets = paper.problem.settings["targets"]
    moved = [*targets[1:], targets[0]]
    need(moved != targets)
    return paper.step_losses(moved)


@slip("loss-summed", "mean_loss")
def loss_summed(paper: Paper, step: str) -> Value:
    return [[[sum(paper.have["losses"][0][0], ZERO)]]]


@slip("perplexity-base-2", "perplexity")
def perplexity_base_2(paper: Paper, step: str) -> Value:
    return [[[Decimal(2) ** paper.have["mean_loss"][0][0][0]]]]
