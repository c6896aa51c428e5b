"""Measurements of a trained model, as plain data; the parts of each are in its module."""

from vitral.inspection.ablation import ablations, attention_sinks
from vitral.inspection.attention import KINDS, NAMED_FROM, head_patterns
from vitral.inspection.gradients import first_over_last, gradients_by_block, untrained
from vitral.inspection.induction import (
    chain_distances,
    count_nats,
    induction_ablation,
    induction_scores,
    periods_of,
    repetition_nats,
)
from vitral.inspection.mask_capabilities import capabilities
from vitral.inspection.minimal_pairs import agreeing_weights
from vitral.inspection.one_text import inspect_text
from vitral.inspection.positions import few_shot_losses, loss_by_context, loss_by_position
from vitral.inspection.probing import classify_passages, linear_probes
from vitral.inspection.recall import recall_by_distance, recall_under_masks
from vitral.inspection.saturation import attention_saturation
from vitral.inspection.softmax import score_statistics
from vitral.inspection.targets import window_targets
from vitral.inspection.words import similar_word_scores, word_measures

__all__ = [
    "KINDS",
    "NAMED_FROM",
    "ablations",
    "agreeing_weights",
    "attention_saturation",
    "attention_sinks",
    "capabilities",
    "chain_distances",
    "classify_passages",
    "count_nats",
    "few_shot_losses",
    "first_over_last",
    "gradients_by_block",
    "head_patterns",
    "induction_ablation",
    "induction_scores",
    "inspect_text",
    "linear_probes",
    "loss_by_context",
    "loss_by_position",
    "periods_of",
    "recall_by_distance",
    "recall_under_masks",
    "repetition_nats",
    "score_statistics",
    "similar_word_scores",
    "untrained",
    "window_targets",
    "word_measures",
]
