"""Weights and tokenizer of another run: the beginning of fine-tuning (`--init-from`)."""

from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data import Dataset, Tokenizer
from vitral.data.growth import extends
from vitral.model import Transformer
from vitral.runs import LoadedRun, RunConfig
from vitral.runs.loading import load_weights
from vitral.training.plans import FIT

BY_TOKEN = ("token_embedding.weight", "head.weight")
"""Tensors with one row for each token of the vocabulary."""


def require_inherited(dataset: Dataset, source: LoadedRun) -> None:
    """Refuse a text that was tokenized by other means than the run's tokenizer or one that has grown from it.

    Raises:
        UsageError: an id has another meaning.
    """
    if not extends(dataset.tokenizer, source.tokenizer):
        where = source.folder.path
        raise UsageError(
            "--init-from {where}: the text was tokenized with another tokenizer; use the one of that run", where=where
        )


def inherited_config(config: RunConfig, tokenizer: Tokenizer) -> RunConfig:
    """The configuration with every special token of the tokenizer, those of the other run included.

    Raises:
        UsageError: the configuration asks for another size of the model.
    """
    if config.training.plan == FIT:
        raise UsageError('training.plan: "fit" chooses the size of a new model; with --init-from use "auto"')
    corpus = config.corpus.model_copy(update={"specials": tuple(tokenizer.declared) or None})
    return config.model_copy(update={"corpus": corpus})


def inherit_weights(model: Transformer, source: LoadedRun) -> None:
    """Load the weights of another run; rows of tokens that it does not have keep their initial values.

    Raises:
        UsageError: the models differ in more than the size of the vocabulary.
    """
    weights = dict(source.model.state_dict())
    if model.vocab_size > source.model.vocab_size:
        own = model.state_dict()
        weights |= {name: _with_new_rows(weights[name], own[name]) for name in BY_TOKEN if name in weights.keys() & own}
    load_weights(model, weights, f"--init-from {source.folder.path}")


def _with_new_rows(former: Tensor, initial: Tensor) -> Tensor:
    """The former rows above the last initial ones; unchanged if the widths differ, which `load_weights` refuses."""
    if former.shape[1] != initial.shape[1]:
        return former
    rows = initial.clone()
    rows[: len(former)] = former
    return rows
