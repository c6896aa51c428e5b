"""The proof of an export: another library opens it, computes the same logits and continues with the same tokens."""

import importlib.metadata
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer
from vitral.decoding import Sampling, generate
from vitral.model import Transformer
from vitral.model.stack import PADDING

PROMPT = "A prompt"
MOST_DIFFERENCE = 1e-5
"""Of logits, as a share of the largest."""
GREEDY_TOKENS = 16
BEGINS = (1, 8, 64)
"""Tokens of the prompts; the last one is as long as the context allows, at most `LONGEST`, or longer than a window."""
LONGEST, LONGEST_WITH_WINDOW = 128, 1024


@dataclass(frozen=True)
class Opened:
    """An export as another library computes it.

    Attributes:
        logits: of tokens `[1, T]`, `[1, T, vocab]`.
        ids: the tokens of a text; None if the export has no tokenizer.
        cached: the same logits, computed token by token with what is kept of earlier ones; None if nothing is kept.
        activations: the named activations of tokens; None if the export has none.
        text: the text of tokens; None if it is not compared.
        greedy: the library's own continuation of tokens by so many, always the most probable one; None to take it
            from `logits`.
        versions: of libraries that are no Python packages.
        close: ends what was opened.
    """

    logits: Callable[[Tensor], Tensor]
    ids: Callable[[str], list[int]] | None = None
    cached: Callable[[Tensor], Tensor] | None = None
    activations: Callable[[Tensor], Mapping[str, Tensor]] | None = None
    text: Callable[[list[int]], str] | None = None
    greedy: Callable[[list[int], int], list[int]] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    close: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Draft:
    """The files of an export, not yet written.

    Attributes:
        form: the form that expresses the model.
        files: the content of each file by name, without the model card and the proof.
        reader: the library that opens the export.
        packages: whose versions the proof records.
        open: the written folder → the export in that library; raises UsageError if it cannot be opened.
        use: lines of the model card that show how to use the export; `PROMPT` in them becomes a prompt that its
            tokenizer accepts.
        front: lines of the model card's front matter.
        most: the greatest difference of logits allowed, as a share of the largest.
    """

    form: str
    files: Mapping[str, bytes]
    reader: str
    packages: Sequence[str]
    open: Callable[[Path], Opened]
    use: Sequence[str]
    front: Sequence[str] = ()
    most: float = MOST_DIFFERENCE


@dataclass(frozen=True)
class PromptProof:
    """One prompt in both libraries.

    Attributes:
        text: the prompt.
        ids: its tokens.
        greatest_difference: of the logits at all its positions.
        greatest_logit: the largest logit, which the difference is compared with.
        equal_ids: whether their tokenizer gives the same ids; None if the export has no tokenizer.
        continuation: what this model writes after it, always the most probable token.
        equal_continuation: whether theirs writes the same.
        equal_decoded: whether their tokenizer makes the same text of the ids; None if it was not compared.
    """

    text: str
    ids: tuple[int, ...]
    greatest_difference: float
    greatest_logit: float
    equal_ids: bool | None
    continuation: str
    equal_continuation: bool
    equal_decoded: bool | None = None


@dataclass(frozen=True)
class Proof:
    """The proof of an export.

    Attributes:
        form: the form.
        reader: the library that opened the export.
        prompts: each prompt in both libraries.
        versions: of the libraries.
        cached_difference: the greatest difference of the logits computed token by token, as a share of the largest
            logit of its prompt; None if the export keeps nothing.
        activation_differences: the greatest difference of each named activation, as a share of its largest number.
    """

    form: str
    reader: str
    prompts: tuple[PromptProof, ...]
    versions: Mapping[str, str]
    cached_difference: float | None = None
    activation_differences: Mapping[str, float] = field(default_factory=dict)

    @property
    def greatest_difference(self) -> float:
        """The greatest difference of logits of all prompts."""
        return max(prompt.greatest_difference for prompt in self.prompts)

    @property
    def relative_difference(self) -> float:
        """The greatest difference as a share of the largest logit of its prompt."""
        return max(one.greatest_difference / max(one.greatest_logit, 1e-30) for one in self.prompts)

    @property
    def equal_text(self) -> bool:
        """Whether every continuation is the same."""
        return all(prompt.equal_continuation for prompt in self.prompts)

    def plain(self) -> dict[str, Any]:
        """PROOF.json."""
        return {
            "form": self.form,
            "reader": self.reader,
            "greatest_difference": self.greatest_difference,
            "relative_difference": self.relative_difference,
            "equal_greedy_text": self.equal_text,
            "prompts": [asdict(prompt) for prompt in self.prompts],
            **({} if self.cached_difference is None else {"cached_difference": self.cached_difference}),
            **({"activation_differences": dict(self.activation_differences)} if self.activation_differences else {}),
            "versions": dict(self.versions),
        }


def prove(
    model: Transformer,
    tokenizer: Tokenizer,
    opened: Opened,
    drafted: Draft,
) -> Proof:
    """Compare a model with its export.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        opened: the export in the other library.
        drafted: the export before it was written.

    Raises:
        UsageError: the export gives other tokens, or logits or activations differ by more than `most`.
    """
    model.eval()
    with torch.inference_mode():
        prompts = _prompts(model, tokenizer)
        compared = tuple(_compared(model, tokenizer, opened, ids) for ids in prompts)
        sentences = [torch.tensor([ids]) for ids in prompts]
        cached = _cached_difference(model, opened, sentences)
        activations = _activation_differences(model, opened, sentences)
    versions = {name: importlib.metadata.version(name) for name in ("vitral", "torch", *drafted.packages)}
    proof = Proof(drafted.form, drafted.reader, compared, {**versions, **opened.versions}, cached, activations)
    if any(prompt.equal_ids is False for prompt in compared):
        raise UsageError("proof: the tokenizer gives other ids in {reader}; nothing was exported", reader=proof.reader)
    if any(prompt.equal_decoded is False for prompt in compared):
        raise UsageError(
            "proof: the tokenizer makes another text in {reader}; nothing was exported", reader=proof.reader
        )
    cache = {} if cached is None else {"logits (with the cache)": cached}
    for name, difference in [("logits", proof.relative_difference), *cache.items(), *activations.items()]:
        if not difference <= drafted.most:
            raise UsageError(
                "proof: {name} differs by {difference:.2g} of its largest number; nothing was exported",
                name=name,
                difference=difference,
            )
    return proof


def cannot_open(reader: str, error: BaseException) -> UsageError:
    """The refusal of an export that the other library does not open."""
    lines = str(error).strip().splitlines()
    said = lines[0][:300] if lines else type(error).__name__
    return UsageError("proof: {reader} cannot open the export ({error})", reader=reader, error=said)


def _prompts(model: Transformer, tokenizer: Tokenizer) -> list[list[int]]:
    """Beginnings of a text that the model itself writes."""
    length = min(model.config.context_length, max(LONGEST, min(2 * _greatest_window(model), LONGEST_WITH_WINDOW)))
    if model.encoder is None:
        text = generate(model, tokenizer, [""], max_tokens=length, sampling=Sampling(), seed=0)[0].text
    else:
        text = tokenizer.decode(range(tokenizer.vocab_size))
    ids = [int(token) for token in tokenizer.encode(text)] or [tokenizer.start]
    ids = (ids * length)[:length]
    return [ids[:size] for size in sorted({*(min(size, length) for size in BEGINS), length})]


def _greatest_window(model: Transformer) -> int:
    attention: Any = model.config.attention
    masks = [] if attention == "none" else [attention.mask.of(layer) for layer in range(model.config.num_layers)]
    return max((mask.size for mask in masks if getattr(mask, "name", "own") == "window"), default=0)


def source_of(model: Transformer) -> Tensor | None:
    """What an encoder-decoder reads beside every prompt, with padding at its end; None for another model."""
    if model.config.source_length is None:
        return None
    places = torch.arange(model.config.source_length)
    return (places % model.vocab_size).where(places < 0.7 * len(places), PADDING)[None]


def _compared(model: Transformer, tokenizer: Tokenizer, opened: Opened, ids: list[int]) -> PromptProof:
    tokens, logits = torch.tensor([ids]), partial(model, source=source_of(model))
    one, other = logits(tokens), opened.logits(tokens)
    text = tokenizer.decode(ids)
    room = max(0, min(GREEDY_TOKENS, model.config.context_length - len(ids)))
    ours = _greedy(logits, tokens, room)
    said = _greedy(opened.logits, tokens, room) if opened.greedy is None else opened.greedy(ids, room)
    again = tokenizer.encode(text).tolist()
    return PromptProof(
        text,
        tuple(ids),
        float((one - other).abs().max()),
        float(one.abs().max()),
        None if opened.ids is None else opened.ids(text) == again,
        tokenizer.decode(ours),
        ours == said,
        None if opened.text is None else opened.text(again) == tokenizer.decode(again),
    )


def _cached_difference(model: Transformer, opened: Opened, sentences: list[Tensor]) -> float | None:
    if opened.cached is None:
        return None
    return max(_difference(opened.cached(each), model(each, source=source_of(model))) for each in sentences)


def _activation_differences(model: Transformer, opened: Opened, sentences: list[Tensor]) -> dict[str, float]:
    """The greatest difference of each activation; that of one which has only one side is infinite."""
    greatest: dict[str, float] = {}
    if opened.activations is None:
        return greatest
    for tokens in sentences:
        ours, theirs = model.trace(tokens, source=source_of(model)), opened.activations(tokens)
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            both = name in ours and name in theirs
            difference = _difference(theirs[name], ours[name]) if both else math.inf
            greatest[name] = max(greatest.get(name, 0.0), difference)
    return greatest


def _difference(theirs: Tensor, expected: Tensor) -> float:
    """As a share of the largest number; what is not finite must be the same."""
    finite = expected.isfinite()
    if theirs.shape != expected.shape or not torch.equal(theirs[~finite], expected[~finite]):
        return math.inf
    differences, numbers = (theirs - expected)[finite].abs(), expected[finite].abs()
    return float(differences.max() / numbers.max().clamp(min=1e-30)) if numbers.numel() else 0.0


def _greedy(logits: Any, tokens: Tensor, room: int) -> list[int]:
    for _step in range(room):
        tokens = torch.cat([tokens, logits(tokens)[:, -1:].argmax(-1)], dim=1)
    return tokens[0, tokens.shape[1] - room :].tolist()
