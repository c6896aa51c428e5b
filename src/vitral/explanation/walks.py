"""Walkthroughs of worked examples and of a model's forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from vitral.core.checked import checked
from vitral.core.errors import UsageError
from vitral.core.names import ATTENTION_STEPS
from vitral.data.tokenizers import Tokenizer
from vitral.explanation.examples.example import Example
from vitral.explanation.narration import Choice, Narrator, middle
from vitral.explanation.phrasebook import Phrases, phrases
from vitral.explanation.sheet import Sheet
from vitral.explanation.steps import Chapter
from vitral.explanation.trace import TracedText, trace_text
from vitral.explanation.walkthrough import Walkthrough
from vitral.model import Transformer

ATTENTION = ("q_pre", "k_pre", *ATTENTION_STEPS)
"""The steps of a block that are shown by default."""
RULES = (("temperature", 0.5), ("top_k", 3.0), ("top_p", 0.9))
"""Decoding rules that are shown after the greedy choice."""


@checked(first=True)
@dataclass(frozen=True)
class RunView:
    """The part of a model's forward pass that is shown.

    Attributes:
        layers: blocks; None for all.
        choice: of heads and cells.
        block: whether the whole blocks and the embedding are shown, instead of attention alone.
        ending: whether the head is shown: logits, probabilities, and the choice under each decoding rule.
        language: "en" or "pt"; the current one if None.
        rules: decoding rules shown with the ending.
    """

    layers: tuple[int, ...] | None = (0,)
    choice: Choice = field(default_factory=lambda: Choice(heads=(0,)))
    block: bool = False
    ending: bool = False
    language: str | None = None
    rules: Sequence[tuple[str, float]] = RULES


@checked(first=True)
def walk_example(example: Example, choice: Choice | None = None, language: str | None = None) -> Walkthrough:
    """The computation of a worked example, from the given numbers to the last step that follows from them.

    Args:
        example: the computation.
        choice: of heads and cells; by default all heads and the middle query.
        language: "en" or "pt"; the current one if None.

    Raises:
        UsageError: a head, position or column that does not exist.
    """
    choice = replace(choice or Choice(), with_given=True)
    say = phrases(language)
    example = example.told(say.language)
    _check_choice(example.sheet, choice)
    narrator = Narrator(example.sheet, say, choice, post_norm=example.architecture.norm == "post")
    intro = [part for part in (example.note, say("explain.example_intro")) if part]
    if example.source:
        intro.append(say("explain.source", source=example.source.rstrip(".")))
    return Walkthrough(example.title, tuple(intro), (Chapter("", narrator.steps()),), say.language)


@checked(first=True)
def walk_run(
    model: Transformer, tokenizer: Tokenizer, text: str, view: RunView | None = None, name: str = ""
) -> Walkthrough:
    """A model's forward pass on a text, in its own numbers.

    Args:
        model: traced in evaluation mode; its mode is restored afterwards.
        tokenizer: the model's.
        text: the input.
        view: the part to show; by default attention of block 0, head 0.
        name: of the run, for the title.

    Raises:
        UsageError: a block, head or position that does not exist, a model without attention if only attention is to be
            shown, an empty text, one longer than the context, or a character that is not in the vocabulary.
    """
    view = view or RunView()
    say = phrases(view.language)
    layers = _layers(model, view)
    if model.config.attention == "none" and not (view.block or view.ending):
        raise UsageError("explain: this model has no attention; ask for the whole block or the ending")
    traced = trace_text(model, tokenizer, text, view.rules if view.ending else ())
    chapters = _chapters(traced, layers, view, say)
    title = say("explain.run_title", run=name or "Vitral", text=repr(text))
    intro = [say("explain.run_intro", count=len(traced.labels))]
    return Walkthrough(title, tuple(intro), chapters, say.language)


def _layers(model: Transformer, view: RunView) -> tuple[int, ...]:
    """The blocks to show.

    Raises:
        UsageError: a block that does not exist.
    """
    have = len(model.blocks)
    layers = tuple(range(have)) if view.layers is None else view.layers
    for layer in layers:
        if not 0 <= layer < have:
            raise UsageError("explain: no block {layer}; the model has {have}, counted from 0", layer=layer, have=have)
    return layers


def _chapters(traced: TracedText, layers: Sequence[int], view: RunView, say: Phrases) -> tuple[Chapter, ...]:
    choice = view.choice
    chapters = []
    if choice.query is None:
        count = len(traced.labels)
        choice = replace(choice, query=count - 1 if view.ending else middle(count))
    for layer in layers:
        _check_choice(traced.blocks[layer], choice)
    if view.block:
        chapters.append(Chapter(say("explain.embedding"), Narrator(traced.embedding, say, choice).steps()))
    for layer in layers:
        narrator = Narrator(traced.blocks[layer], say, choice, post_norm=traced.post_norm)
        title = say("explain.block" if view.block else "explain.attention", number=layer)
        chapters.append(Chapter(title, narrator.steps(None if view.block else ATTENTION)))
    if view.ending:
        chapters.append(Chapter(say("explain.ending"), Narrator(traced.ending, say, choice).steps()))
    return tuple(chapter for chapter in chapters if chapter.steps)


def _check_choice(sheet: Sheet, choice: Choice) -> None:
    """Refuse heads and positions that do not exist.

    Raises:
        UsageError: naming those that do.
    """
    first, have = sheet.namer.first, sheet.num_heads
    for head in choice.heads or ():
        if not 0 <= head < have:
            raise UsageError(
                "explain: no head {head}; there are {have}, counted from {first}",
                head=head + first,
                have=have,
                first=first,
            )
    square = next(
        (sheet.values[name] for name in ("weights", "masked", "scaled", "scores") if name in sheet.values), None
    )
    tall = next((value for value in sheet.values.values() if value.dim() == 2), None)
    sizes = square.shape[-2:] if square is not None else (len(tall), len(tall)) if tall is not None else (1, 1)
    for what, place, size in (("query", choice.query, sizes[0]), ("key", choice.key, sizes[1])):
        if place is not None and not 0 <= place < size:
            raise UsageError(
                "explain: no {what} at position {place}; there are {size}, counted from {first}",
                what=what,
                place=place + first,
                size=size,
                first=first,
            )
    computed = [sheet.values[quantity.name] for quantity in sheet.quantities if quantity.axes[-1] != "source"]
    widest = max((value.shape[-1] for value in computed if value.dim()), default=1)
    if not 0 <= choice.column < widest:
        raise UsageError(
            "explain: no column {column}; the widest matrix has {size}, counted from {first}",
            column=choice.column + first,
            size=widest,
            first=first,
        )
