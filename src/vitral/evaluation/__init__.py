"""Evaluation: losses of a model on a split, n-gram baselines, and copying from the training text."""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily

if TYPE_CHECKING:
    from vitral.evaluation.baselines import NgramBaselines, baseline_name, neighbours, rank_among_baselines
    from vitral.evaluation.copying import Copy, copied_spans, longest_copy, novel_share, training_text
    from vitral.evaluation.losses import SplitLoss, evaluate_split, token_losses
    from vitral.evaluation.masking import FilledText, Masking, fill
    from vitral.evaluation.ngrams import WittenBell, bigram_entropy, entropy_by_place, ngram_baselines
    from vitral.evaluation.paired import TargetLosses, block_differences, ngram_differences, target_losses

__getattr__ = lazily(__name__)
