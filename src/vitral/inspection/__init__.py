"""Looking inside a trained model: what heads attend to, what each is worth, what its vectors know of words."""

from vitral.inspection.contexts import co_occurrences, positive_pmi, spearman, whole_words
from vitral.inspection.knockout import Effect, loss_by_window, loss_increase, mean_of_z, remove_heads
from vitral.inspection.neighbours import Neighbour, cosines, nearest
from vitral.inspection.pairs import Forms, MinimalPair, fill, log_probability, place_of, preference, wilson
from vitral.inspection.patterns import (
    BROAD,
    KINDS,
    LEAST_KEYS,
    NAMED_FROM,
    Landmarks,
    attended_distance,
    attended_share,
    entropy_share,
    kind_masks,
    landmarks,
    name_of,
    overlap,
    patient_queries,
    uniform_weights,
)

__all__ = [
    "BROAD",
    "KINDS",
    "LEAST_KEYS",
    "NAMED_FROM",
    "Effect",
    "Forms",
    "Landmarks",
    "MinimalPair",
    "Neighbour",
    "attended_distance",
    "attended_share",
    "co_occurrences",
    "cosines",
    "entropy_share",
    "fill",
    "kind_masks",
    "landmarks",
    "log_probability",
    "loss_by_window",
    "loss_increase",
    "mean_of_z",
    "name_of",
    "nearest",
    "overlap",
    "patient_queries",
    "place_of",
    "positive_pmi",
    "preference",
    "remove_heads",
    "spearman",
    "uniform_weights",
    "whole_words",
    "wilson",
]
