"""Evaluation: how well a model predicts a part of a text, what n-grams would have reached, what a sample copies."""

from vitral.evaluation.blanks import Blanks
from vitral.evaluation.copying import Copy, longest_copy, novel_share, training_text
from vitral.evaluation.losses import PartLoss, evaluate_part
from vitral.evaluation.ngrams import NgramLines, WittenBell, bigram_entropy, line_name, ngram_lines, standing

__all__ = [
    "Blanks",
    "Copy",
    "NgramLines",
    "PartLoss",
    "WittenBell",
    "bigram_entropy",
    "evaluate_part",
    "line_name",
    "longest_copy",
    "ngram_lines",
    "novel_share",
    "standing",
    "training_text",
]
