"""From an example or a model to a walkthrough."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer
from vitral.explain.example import Example
from vitral.explain.observing import Observation, observe
from vitral.explain.phrases import phrases
from vitral.explain.sheet import Sheet
from vitral.explain.telling import Choice, Teller
from vitral.explain.walkthrough import Chapter, Walkthrough
from vitral.model import Transformer

ATTENTION = ("q_straight", "k_straight", "q", "k", "v", "scores", "scaled", "masked", "weights", "z", "out")
"""The steps that are shown where not the whole block is asked for."""
RULES = (("temperature", 0.5), ("top_k", 3.0), ("top_p", 0.9))
"""Decoding rules that are shown beside the greedy choice."""


@dataclass(frozen=True)
class View:
    """What of a run is shown.

    Attributes:
        layers: which blocks; None for all.
        choice: of heads and cells.
        block: the whole block, not attention alone; embeddings, too.
        ending: the head: logits, probabilities, and the choice under each decoding rule.
        language: "en" or "pt".
        rules: decoding rules shown with the ending.
    """

    layers: tuple[int, ...] | None = (0,)
    choice: Choice = field(default_factory=lambda: Choice(heads=(0,)))
    block: bool = False
    ending: bool = False
    language: str = "en"
    rules: Sequence[tuple[str, float]] = RULES


def walk_example(example: Example, choice: Choice | None = None, language: str = "en") -> Walkthrough:
    """A worked example's computation, from what is given to the last step that follows.

    Args:
        example: what is computed.
        choice: of heads and cells; all heads and the last query if left out.
        language: "en" or "pt".

    Raises:
        UsageError: a head, position or column that is not there.
    """
    choice = replace(choice or Choice(), with_given=True)
    say = phrases(language)
    _check_choice(example.sheet, choice)
    teller = Teller(example.sheet, say, choice, post_norm=example.setting.block == "post")
    intro = [part for part in (example.note, say("explain.example_intro")) if part]
    if example.source:
        intro.append(say("explain.source", source=example.source.rstrip(".")))
    return Walkthrough(example.title, tuple(intro), (Chapter("", teller.steps()),), language)


def walk_run(
    model: Transformer, tokenizer: Tokenizer, text: str, view: View | None = None, name: str = ""
) -> Walkthrough:
    """A model's own forward pass on a text, in its own numbers.

    Args:
        model: whose pass it is; traced in evaluation mode, and left in the mode it was in.
        tokenizer: the model's.
        text: what it reads.
        view: what is shown; attention of block 0, head 0, if left out.
        name: of the run, for the title.

    Raises:
        UsageError: a block, head or position that is not there, a model without attention where that is all that was
            asked for, an empty text, one longer than the context, or a character the model has never seen.
    """
    view = view or View()
    say = phrases(view.language)
    layers = _layers(model, view)
    if model.config.attention == "none" and not (view.block or view.ending):
        raise UsageError("explain: this model was made without attention; ask for the whole block or the ending")
    seen = observe(model, tokenizer, text, view.rules if view.ending else ())
    chapters = _chapters(seen, layers, view)
    title = say("explain.run_title", run=name or "Vitral", text=repr(text))
    intro = [say("explain.run_intro", count=len(seen.labels))]
    return Walkthrough(title, tuple(intro), chapters, view.language)


def _layers(model: Transformer, view: View) -> tuple[int, ...]:
    """The blocks asked for.

    Raises:
        UsageError: one that is not there.
    """
    have = len(model.blocks)
    layers = tuple(range(have)) if view.layers is None else view.layers
    for layer in layers:
        if not 0 <= layer < have:
            raise UsageError(f"explain: no block {layer}; the model has {have}, counted from 0")
    return layers


def _chapters(seen: Observation, layers: Sequence[int], view: View) -> tuple[Chapter, ...]:
    say, choice = phrases(view.language), view.choice
    chapters = []
    for layer in layers:
        _check_choice(seen.blocks[layer], choice)
    if view.block:
        chapters.append(Chapter(say("explain.embedding"), Teller(seen.embedding, say, choice).steps()))
    for layer in layers:
        teller = Teller(seen.blocks[layer], say, choice, post_norm=seen.post_norm)
        title = say("explain.block" if view.block else "explain.attention", number=layer)
        chapters.append(Chapter(title, teller.steps(None if view.block else ATTENTION)))
    if view.ending:
        chapters.append(Chapter(say("explain.ending"), Teller(seen.ending, say, choice).steps()))
    return tuple(chapter for chapter in chapters if chapter.steps)


def _check_choice(sheet: Sheet, choice: Choice) -> None:
    """Refuse heads and positions that are not there.

    Raises:
        UsageError: naming what there is.
    """
    first, have = sheet.scribe.first, sheet.num_heads
    for head in choice.heads or ():
        if not 0 <= head < have:
            raise UsageError(f"explain: no head {head + first}; there are {have}, counted from {first}")
    square = next(
        (sheet.values[name] for name in ("weights", "masked", "scaled", "scores") if name in sheet.values), None
    )
    tall = next((value for value in sheet.values.values() if value.dim() == 2), None)
    sizes = square.shape[-2:] if square is not None else (len(tall), len(tall)) if tall is not None else (1, 1)
    for what, place, size in (("query", choice.query, sizes[0]), ("key", choice.key, sizes[1])):
        if place is not None and not 0 <= place < size:
            raise UsageError(f"explain: no {what} at position {place + first}; there are {size}, counted from {first}")
    if choice.column < 0:
        raise UsageError(f"explain: no column {choice.column + first}; columns are counted from {first}")
