"""Evaluation: losses of a model on a split, n-gram baselines, and copying from the training text."""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily

if TYPE_CHECKING:
    from vitral.evaluation.baselines import NgramBaselines, baseline_name, loss_unit, neighbours, rank_among_baselines
    from vitral.evaluation.copying import Copy, copied_spans, longest_copy, novel_share, training_text
    from vitral.evaluation.losses import SplitLoss, evaluate_split, token_losses
    from vitral.evaluation.masking import FilledText, Masking, fill
    from vitral.evaluation.ngrams import WittenBell, bigram_entropy, entropy_by_place, ngram_baselines
    from vitral.evaluation.paired import TargetLosses, block_differences, ngram_differences, target_losses

__all__ = [
    "Copy",
    "FilledText",
    "Masking",
    "NgramBaselines",
    "SplitLoss",
    "TargetLosses",
    "WittenBell",
    "baseline_name",
    "bigram_entropy",
    "block_differences",
    "copied_spans",
    "entropy_by_place",
    "evaluate_split",
    "fill",
    "longest_copy",
    "loss_unit",
    "neighbours",
    "ngram_baselines",
    "ngram_differences",
    "novel_share",
    "rank_among_baselines",
    "target_losses",
    "token_losses",
    "training_text",
]

__getattr__ = lazily(__name__)
