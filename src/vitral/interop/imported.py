"""A model of another library as Vitral expresses it, before it is a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.files import as_json
from vitral.data.tokenizers import Tokenizer
from vitral.interop.foreign import require_fit
from vitral.interop.token_files import tokenizer_from
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


def whole(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    vocab_size: int,
    origin: Mapping[str, Any],
    *,
    tokenizer: str | Path,
    hub: Any = None,
) -> Imported:
    """A model whose weights are those of its configuration, with its tokenizer.

    Args:
        config: its configuration.
        weights: its tensors by our names.
        vocab_size: rows of its embedding.
        origin: as in `Imported`, without the files of the tokenizer.
        tokenizer: what `tokenizer_from` takes.
        hub: stands in for the package `huggingface_hub`.

    Raises:
        UsageError: a tensor is missing or of another shape or type, or the tokenizer cannot be read or is another's.
    """
    require_fit(config, vocab_size, weights, origin["source"])
    try:
        as_json(origin)
    except ValueError as error:  # a number that is not finite, or half a letter
        said = ascii(str(error))[1:-1]
        raise UsageError("{path}: cannot be read ({error})", path=origin["source"], error=said) from None
    read, files = tokenizer_from(tokenizer, vocab_size, origin["config"], hub=hub)
    return Imported(config, weights, read, {**origin, "files": {**origin["files"], **files}})
