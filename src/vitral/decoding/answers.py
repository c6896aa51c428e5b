"""Asking a model of records: the prompt of a source, by the shape of the model, and questions with their answers."""

from collections.abc import Iterator, Sequence

from vitral.data.answers import ANSWER, END, USER
from vitral.data.batches import Reading, Split
from vitral.data.tokenizers import Tokenizer
from vitral.decoding.generation import DEFAULTS, GenerateOptions, generate
from vitral.decoding.sampling import GREEDY
from vitral.model.transformer import Transformer

SHOWN = 3
"""Questions whose answers are shown."""


def asking(
    model: Transformer, tokenizer: Tokenizer, sources: Sequence[str], options: GenerateOptions = DEFAULTS
) -> tuple[list[str], GenerateOptions]:
    """The prompts by which a model is asked for the answers to some sources, and the options by which these end.

    A decoder reads each source in its prompt, as the first message of a chat where it was trained on chats; an
    encoder-decoder reads it beside the prompt.
    """
    asker = USER if USER in tokenizer.declared else ""
    return _prompts(model, tokenizer, [f"{asker}{source}" for source in sources], options)


def _prompts(
    model: Transformer, tokenizer: Tokenizer, questions: Sequence[str], options: GenerateOptions
) -> tuple[list[str], GenerateOptions]:
    """The same for the beginnings of records, up to the answer."""
    prompts, read = [f"{question}{ANSWER}" for question in questions], None
    if model.encoder is not None:
        prompts, read = [ANSWER] * len(questions), tuple(questions)
    return prompts, options.model_copy(update={"sources": read, "end": tokenizer.declared[END]})


def answered(
    model: Transformer, tokenizer: Tokenizer, split: Split, reading: Reading, max_tokens: int
) -> Iterator[str]:
    """The first questions of a split, each with the model's answer, and the right one where that is another.

    Args:
        model: of records, but not one that names labels.
        tokenizer: the model's.
        split: of records.
        reading: how much the model reads of a record.
        max_tokens: of an answer.
    """
    shown = split.segments[reading.fits(split)][:SHOWN]
    records = [tokenizer.decode(split.tokens[begin:end]).partition(ANSWER) for begin, end in shown]
    prompts, options = _prompts(model, tokenizer, [question for question, *_ in records], DEFAULTS)
    every = generate(model, tokenizer, prompts, max_tokens=max_tokens, sampling=GREEDY, options=options)
    for (question, _, rest), found in zip(records, every, strict=True):
        right = rest.partition(END)[0]
        verdict = "✓" if found.text == right else f"✗ {right}"
        yield f"{question.rpartition(USER)[2]} → {found.text} {verdict}"
