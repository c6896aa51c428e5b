"""Walkthroughs of worked examples and of a model's forward pass."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.names import ATTENTION_STEPS
from vitral.data.tokenizers import Tokenizer
from vitral.explanation.backward import (
    Loss,
    backward_steps,
    last_cell,
    loss_of,
    named_cell,
)
from vitral.explanation.examples.example import Example
from vitral.explanation.formulas.notation import Name
from vitral.explanation.narration import Choice, Narrator, middle, sides
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


@dataclass(frozen=True)
class RunView:
    """The part of a model's forward pass that is shown.

    Attributes:
        layers: blocks; None for all.
        choice: of heads and cells.
        block: whether the whole blocks and the embedding are shown, instead of attention alone.
        ending: whether the head is shown: logits, probabilities, and the choice under each decoding rule.
        language: "en" or "pt"; the current one if None.
        backward: whether the backward pass of the next token's loss is shown instead.
    """

    layers: tuple[int, ...] | None = (0,)
    choice: Choice = field(default_factory=lambda: Choice(heads=(0,)))
    block: bool = False
    ending: bool = False
    language: str | None = None
    backward: bool = False


def walk_example(example: Example, choice: Choice | None = None, language: str | None = None) -> Walkthrough:
    """The computation of a worked example, from the given numbers to the last step that follows from them.

    Args:
        example: the computation.
        choice: of heads and cells; by default all heads and the middle query.
        language: "en" or "pt"; the current one if None.

    Raises:
        UsageError: a head, position or column that does not exist.
    """
    example, narrator = _narrated(example, choice or Choice(), language)
    say = narrator.say
    intro = [part for part in (example.note, say("explain.example_intro")) if part]
    if example.source:
        intro.append(say("explain.source", source=example.source.rstrip(".")))
    given = [narrator.given()] if example.sheet.given_names else []
    chapter = Chapter("", (*given, *narrator.steps()))
    return Walkthrough(example.title, tuple(intro), (chapter,), say.language, sheet=example.sheet)


def walk_backward(
    example: Example, cell: str | None = None, choice: Choice | None = None, language: str | None = None
) -> Walkthrough:
    """The backward pass of a worked example: the gradient of one number with respect to everything it is made of.

    Args:
        example: the computation.
        cell: the number, as "output[2,1]"; if None, the quantity `loss`, or else the worked cell of the last quantity.
        choice: of heads; of the row and column of the last quantity.
        language: "en" or "pt"; the current one if None.

    Raises:
        UsageError: no such cell, or nothing in the example has a gradient.
    """
    example, narrator = _narrated(example, choice or Choice(), language)
    say = narrator.say
    name, index = named_cell(cell, example.sheet, narrator.heads[0]) if cell is not None else last_cell(narrator)
    loss, numbers = loss_of(example.sheet, name, index), (str(entry + example.sheet.first) for entry in index)
    intro = (say("backward.intro"), say("backward.loss_cell", cell=f"{name}[{','.join(numbers)}]"))
    chapter = Chapter(say("backward.heading"), backward_steps(narrator, loss))
    return Walkthrough(example.title, intro, (chapter,), say.language)


def _narrated(example: Example, choice: Choice, language: str | None) -> tuple[Example, Narrator]:
    """An example in a language, and who tells it."""
    say = phrases(language)
    _check_choice(example.sheet, choice)
    return example.told(say.language), Narrator(example.sheet, say, choice)


def walk_run(
    model: Transformer,
    tokenizer: Tokenizer,
    text: str,
    view: RunView | None = None,
    name: str = "",
    source: str | None = None,
) -> Walkthrough:
    """A model's forward pass on a text, in its own numbers.

    Args:
        model: traced in evaluation mode; its mode is restored afterwards.
        tokenizer: the model's.
        text: the input.
        view: the part to show; by default attention of block 0, head 0.
        name: of the run, for the title.
        source: of an encoder-decoder, the text that its encoder reads.

    Raises:
        UsageError: a block, head or position that does not exist, a model without attention if only attention is to be
            shown, an ending or a loss that is not known, or as `trace_text`.
    """
    view = view or RunView()
    say = phrases(view.language)
    layers = _layers(model, view)
    if (view.ending or view.backward) and not predicts_next(model):
        raise UsageError("explain: --ending, --backward: this model predicts no next token; leave them out")
    traced = trace_text(model, tokenizer, text, RULES if view.ending else (), source, gradients=view.backward)
    if model.config.attention == "none" and not (view.block or view.ending):
        raise UsageError("explain: this model has no attention; ask for the whole block or the ending")
    count = len(traced.ending.tokens)
    view = replace(view, choice=_chosen(view, count))
    for layer in layers:
        _check_choice(traced.blocks[layer][0], view.choice)
    intro = (say("explain.run_intro", count=count), *_about_blocks(len(model.blocks), layers, view, say))
    chapters_of = _chapters
    if view.backward:
        intro = _about_loss(traced, view, say)
        chapters_of = partial(_backward, partial(traced.gradient, view.choice.query or 0))
    chapters = list(chapters_of(traced, layers, view, say))
    if traced.encoder is not None:
        intro = (*intro, say("explain.source", source=repr(source)))
        own = replace(view, choice=replace(view.choice, query=None, key=None))
        shown = [layer for layer in layers if layer < len(traced.encoder.blocks)]
        of_encoder = chapters_of(traced.encoder, shown, own, say)
        of_encoder = [replace(chapter, title=say("explain.encoder", title=chapter.title)) for chapter in of_encoder]
        chapters = [*chapters, *of_encoder] if view.backward else [*of_encoder, *chapters]
    title = say("explain.run_title", run=name or "Vitral", text=repr(text))
    return Walkthrough(title, intro, tuple(chapter for chapter in chapters if chapter.steps), say.language)


def predicts_next(model: Transformer) -> bool:
    """Whether its head is of the next token, and not of labels or of hidden tokens."""
    sees_all = model.mask is not None and model.mask.first_target() is None
    return not (model.config.num_labels or model.config.head_transform or sees_all)


def _about_loss(traced: TracedText, view: RunView, say: Phrases) -> tuple[str, ...]:
    """The loss in words: that of the token after the chosen position.

    Raises:
        UsageError: no token follows it.
    """
    query, labels = view.choice.query or 0, traced.ending.tokens
    last = len(labels) - 1
    if query >= last:
        raise UsageError(
            "explain: --backward needs the token after the chosen position; give --query below {last} or a longer text",
            last=last,
        )
    row = say("explain.position", number=query, label=labels[query])
    about = (say("backward.intro"), say("backward.loss_next", token=labels[query + 1], row=row))
    return about if traced.encoder is None else (*about, say("backward.encoder"))


def _backward(
    seed: Callable[[str], Tensor], part: TracedText, layers: Sequence[int], view: RunView, say: Phrases
) -> Iterator[Chapter]:
    """The backward pass of a decoder or an encoder: from its end, if that is shown, through each block from the last.

    `seed` is the gradient of the loss with respect to a named activation.
    """
    choice = view.choice
    if view.ending and choice.query is not None:  # that of an encoder is None
        cell = choice.query, part.embedding.architecture.rows[choice.query + 1]
        loss = loss_of(part.ending, "probabilities", cell, is_log=True)
        yield Chapter(say("explain.ending"), backward_steps(Narrator(part.ending, say, choice), loss))
    for layer in reversed(layers):
        for sheet, title in reversed([*zip(part.blocks[layer], _titles(view), strict=False)]):
            names = [quantity.name for quantity in sheet.quantities if view.block or quantity.name == "out"]
            for name in names[-1:]:
                _, scope, called = sheet.called(name).rpartition("encoder.")
                loss = Loss(name, seed(f"{scope}blocks.{layer}.{'attn.' * (called == 'out')}{called}"))
                yield Chapter(say(title, number=layer), backward_steps(Narrator(sheet, say, choice), loss))


def _titles(view: RunView) -> tuple[str, ...]:
    """The keys of the titles of a block's sheets."""
    return "explain.block" if view.block else "explain.attention", "explain.cross", "explain.feed_forward"


def _chosen(view: RunView, count: int) -> Choice:
    """The choice with its query: of so many positions the middle one, or the last where the next token is chosen."""
    if view.choice.query is not None:
        return view.choice
    return replace(view.choice, query=count - 1 if view.ending and not view.backward else middle(count))


def _layers(model: Transformer, view: RunView) -> tuple[int, ...]:
    """The blocks to show.

    Raises:
        UsageError: a block that does not exist.
    """
    layers = tuple(range(len(model.blocks))) if view.layers is None else view.layers
    for layer in layers:
        _refuse("layer", layer, len(model.blocks), 0)
    return layers


def _about_blocks(num_blocks: int, layers: Sequence[int], view: RunView, say: Phrases) -> Iterator[str]:
    """Sentences about the blocks: those that are not shown, and the number of a block at its names."""
    unshown = [layer for layer in range(num_blocks) if layer not in layers]
    if unshown and (view.block or view.ending):
        yield say(f"explain.{'unshown_one' if len(unshown) == 1 else 'unshown'}", blocks=", ".join(map(str, unshown)))
    if num_blocks and _is_numbered(layers, view):
        yield say("explain.numbered")


def _is_numbered(layers: Sequence[int], view: RunView) -> bool:
    """Whether one name would have two values without the number of its block."""
    return len(layers) > 1 or view.ending


def _with_numbers(sheet: Sheet, block: int) -> Sheet:
    """The sheet of a block, its quantities written with the block's number."""
    names = {"resid_pre", "Concat(z)", *(quantity.name for quantity in sheet.quantities)} | set(sheet.names)
    numbered = {
        name: replace(sheet.names.get(name, Name(name)), above=f"({block})") for name in names - {*"Wbg", "memory"}
    }
    return replace(sheet, names={**sheet.names, **numbered})


def _chapters(traced: TracedText, layers: Sequence[int], view: RunView, say: Phrases) -> Iterator[Chapter]:
    choice, blocks, ending = view.choice, traced.blocks, traced.ending
    if _is_numbered(layers, view):
        blocks = tuple(tuple(_with_numbers(sheet, layer) for sheet in sheets) for layer, sheets in enumerate(blocks))
        of_block, of_embedding = ending.called("resid_post"), traced.embedding.called("embed")
        last = Name(of_block, above=f"({len(blocks) - 1})") if blocks else Name(of_embedding)
        ending = replace(ending, names={**ending.names, "resid_post": last})
    if view.block:
        yield Chapter(say("explain.embedding"), Narrator(traced.embedding, say, choice).steps())
    for layer in layers:
        for sheet, title in zip(blocks[layer], _titles(view), strict=False):
            own = replace(choice, key=None) if "cross" in title else choice
            steps = Narrator(sheet, say, own).steps(None if view.block else ATTENTION)
            yield Chapter(say(title, number=layer), steps)
    is_head = "logits" in ending
    if view.ending or (view.block and not is_head):
        title = say("explain.ending" if is_head else "titles.final_norm")
        yield Chapter(title, Narrator(ending, say, choice).steps())


def _check_choice(sheet: Sheet, choice: Choice) -> None:
    """Refuse heads and positions that do not exist.

    Raises:
        UsageError: naming those that do.
    """
    first = sheet.first
    queries, keys = sides(sheet)
    computed = [sheet.values[quantity.name] for quantity in sheet.quantities if quantity.axes[-1] != "source"]
    widest = max((value.shape[-1] for value in computed if value.dim()), default=1)
    for head in choice.heads or ():
        _refuse("head", head, sheet.num_heads, first)
    for option, position, count in (("query", choice.query, queries), ("key", choice.key, keys)):
        _refuse(option, position or 0, count, first)
    _refuse("column", choice.column, widest, first)


def _refuse(option: str, index: int, count: int, first: int) -> None:
    """Refuse a place that is none of so many."""
    if not 0 <= index < count:
        raise UsageError(
            "--{option} {number}: there are {count}, counted from {first}",
            option=option,
            number=index + first,
            count=count,
            first=first,
        )
