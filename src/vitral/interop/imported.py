"""A model of another library as Vitral expresses it, before it is a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitral.data.tokenizers import Tokenizer
from vitral.model import ModelConfig


@dataclass(frozen=True)
class Imported:
    """A model to be made a run.

    Attributes:
        config: its configuration.
        weights: its tensors by our names.
        tokenizer: its tokenizer.
        origin: where it comes from, as plain data: form, source, files with their SHA-256, its own configuration.
    """

    config: ModelConfig
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer
    origin: Mapping[str, Any]
