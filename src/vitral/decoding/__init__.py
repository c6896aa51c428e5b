"""Decoding: from logits to text, by filters, greedy or sampled choice, streaming, and beam search."""

from vitral.decoding.answers import answered, asking
from vitral.decoding.beam import beam_search
from vitral.decoding.generation import GenerateOptions, Sample, generate, stream
from vitral.decoding.reader import Reader, Way, way_of
from vitral.decoding.sampling import (
    GREEDY,
    Sampling,
    apply_temperature,
    choose,
    distribution,
    forbid,
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
    "apply_temperature",
    "asking",
    "beam_search",
    "choose",
    "distribution",
    "forbid",
    "generate",
    "keep_min_p",
    "keep_top_k",
    "keep_top_p",
    "penalise_repetition",
    "stream",
    "uniforms",
    "way_of",
]
