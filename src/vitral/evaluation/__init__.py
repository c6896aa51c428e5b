"""Evaluation: losses of a model on a split, n-gram baselines, and copying from the training text."""

from vitral.evaluation.copying import Copy, copied_spans, longest_copy, novel_share, training_text
from vitral.evaluation.losses import SplitLoss, evaluate_split
from vitral.evaluation.masking import Masking
from vitral.evaluation.ngrams import (
    NgramBaselines,
    WittenBell,
    baseline_name,
    bigram_entropy,
    ngram_baselines,
    rank_among_baselines,
)

__all__ = [
    "Copy",
    "Masking",
    "NgramBaselines",
    "SplitLoss",
    "WittenBell",
    "baseline_name",
    "bigram_entropy",
    "copied_spans",
    "evaluate_split",
    "longest_copy",
    "ngram_baselines",
    "novel_share",
    "rank_among_baselines",
    "training_text",
]
