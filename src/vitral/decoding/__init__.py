"""Decoding: from logits to text, by filters, greedy or sampled choice, streaming, and beam search."""

from vitral.decoding.beam import beam_search
from vitral.decoding.generation import GenerateOptions, Sample, answered, asking, generate, stream
from vitral.decoding.reader import Reader, Way, way_of
from vitral.decoding.sampling import (
    GREEDY,
    Sampling,
    choose,
    distribution,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise_repetition,
    uniforms,
)

__all__ = [
    "GREEDY",
    "GenerateOptions",
    "Reader",
    "Sample",
    "Sampling",
    "Way",
    "answered",
    "asking",
    "beam_search",
    "choose",
    "distribution",
    "generate",
    "keep_min_p",
    "keep_top_k",
    "keep_top_p",
    "penalise_repetition",
    "stream",
    "uniforms",
    "way_of",
]
