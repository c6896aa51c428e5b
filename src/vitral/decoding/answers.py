"""Asking a model of pairs: the prompt of a source, by the shape of the model."""

from collections.abc import Sequence

from vitral.data.answers import ANSWER, END, pair
from vitral.data.tokenizers import Tokenizer
from vitral.decoding.generation import DEFAULTS, GenerateOptions
from vitral.model.transformer import Transformer


def asking(
    model: Transformer, tokenizer: Tokenizer, sources: Sequence[str], options: GenerateOptions = DEFAULTS
) -> tuple[list[str], GenerateOptions]:
    """The prompts by which a model is asked for the answers to some sources, and the options by which these end.

    A decoder reads each source in its prompt; an encoder-decoder reads it beside the prompt.
    """
    prompts, read = [pair(source) for source in sources], None
    if model.encoder is not None:
        prompts, read = [ANSWER] * len(sources), tuple(sources)
    return prompts, options.model_copy(update={"sources": read, "end": tokenizer.declared[END]})
