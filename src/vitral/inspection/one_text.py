"""One text seen from inside a model: attention maps, kinds of heads, ablations, logit lens, residual norms."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitral.attention.masks import ByLayer
from vitral.core.language import N_
from vitral.data import Split, Tokenizer
from vitral.evaluation import Masking
from vitral.inspection.ablation import ablations
from vitral.inspection.attention import attention_maps, head_kinds
from vitral.inspection.edits import Edit, effect_of_edits
from vitral.inspection.lens import logit_lens, residual_norms
from vitral.inspection.relevance import weight_relevance
from vitral.inspection.targets import text_targets, text_tokens, window_targets
from vitral.model import ModelConfig, Transformer

RELEVANCE = (8, 64)
"""Windows, and tokens of each, on which relevance is measured at most: each token is replaced in turn."""
SCHEMA = 1
"""Version of what `inspect_text` returns; `docs/inspect.md` documents it."""


def inspect_text(
    model: Transformer,
    tokenizer: Tokenizer,
    text: str,
    *,
    part: Split | None = None,
    windows: int | None = None,
    top: int = 5,
    edits: Sequence[Edit] = (),
    masking: Masking | None = None,
) -> dict[str, Any]:
    """Everything `vitral inspect` shows, as plain data ready for JSON: finite numbers, None where there is none.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        text: what it reads.
        part: the split to draw windows from; goes with `windows`.
        windows: measure ablations and kinds of heads on so many windows of `part` instead of the text.
        top: how many tokens the lens lists at each position.
        edits: what they change of the predictions on the text is told as well; all the rest is of the model as it is.
        masking: of a masked language model.

    Returns:
        `schema`, `text`, `objective`, `model` (what it is made of), `tokens`, `measured_on`, `attention`, `kinds`,
        `ablation`, `lens`, `norms`, `relevance` and `notes`, with edits also `edited`; see `docs/inspect.md`.

    Raises:
        UsageError: an empty text, one longer than the context, or a character without a token.
    """
    tokens = text_tokens(model, tokenizer, text)
    of_text = text_targets(model, tokens, masking)
    changed = effect_of_edits(model, tokenizer, of_text, edits, top=top) if edits else None
    drawn = window_targets(model, part, windows, masking) if part is not None and windows is not None else None
    scored = drawn or of_text
    read = tokens if drawn is None else drawn.inputs
    some = read[:: -(-len(read) // RELEVANCE[0]), : RELEVANCE[1]]
    source = tokens[0].cpu().numpy() if part is None else part.tokens
    counts = np.bincount(source, minlength=tokenizer.vocab_size)
    config = model.config
    plain = config.plain()
    return {
        "schema": SCHEMA,
        "text": text,
        "objective": "next-token" if masking is None else "masked",
        "model": {
            "layers": config.num_layers,
            "heads": 0 if config.attention == "none" else config.num_heads,
            "kv_heads": 0 if config.attention == "none" else config.kv_heads,
            **({} if config.recurrence is None else {"recurrence": config.recurrence}),
            "feed_forward": plain["feed_forward"],
            "norm": config.norm,
            "residual": config.residual,
            "positions": plain["positions"],
            "mask": None if config.attention == "none" else config.attention.mask.plain(),
        },
        "tokens": [{"id": token, "label": tokenizer.label(token)} for token in tokens[0].tolist()],
        "measured_on": {"what": "text" if drawn is None else "windows", "rows": len(read), "length": read.shape[1]},
        "attention": attention_maps(model, tokens),
        "kinds": head_kinds(model, tokenizer, read),
        "ablation": ablations(model, scored),
        "lens": logit_lens(model, tokenizer, of_text, top=top),
        "norms": residual_norms(model, tokens),
        "relevance": None if masking is not None else weight_relevance(model, some, counts),
        **({} if changed is None else {"edited": changed}),
        "notes": notes(model, masking, has_targets=scored.count > 0),
    }


def notes(model: Transformer, masking: Masking | None, *, has_targets: bool) -> list[str]:
    """What the numbers of this model and text do not say, one sentence or two for each."""
    seen = 0 if model.mask is None else model.mask.first_target()
    prefix = N_("The first {n} positions, inside the prefix, see their next token: not scored.")
    said = [
        (
            masking is not None,
            N_(
                "Masked language model: no next token is predicted. For loss and lens each position is masked in "
                "turn, and its target is the token of the text there. Attention maps and norms are of the text with "
                "nothing masked."
            ),
        ),
        (
            masking is None and seen is None,
            N_("Every position sees its next token: loss, rank and ablation measure copying, not prediction."),
        ),
        (masking is None and bool(seen), prefix.format(n=seen)),
        (
            not has_targets,
            N_("The text has no token to predict: no loss and no ablation. Give a longer text, or windows."),
        ),
        *_notes_on_wiring(model.config),
    ]
    return [sentence for applies, sentence in said if applies]


def _notes_on_wiring(config: ModelConfig) -> list[tuple[bool, str]]:
    """Each with whether it applies."""
    post, attends = config.norm == "post", config.attention != "none"
    return [
        (
            post and not config.has_final_norm,
            N_(
                "Post-norm: each sublayer ends with its own norm and there is no final norm, so the lens applies the "
                "head alone, the norms of the stream follow from the norm's gain, and an ablated sublayer keeps its "
                "norm."
            ),
        ),
        (
            post and config.has_final_norm,
            N_(
                "Post-norm: each sublayer ends with its own norm. The lens applies the final norm too, the norms of "
                "the stream follow from the norm's gain, and an ablated sublayer keeps its norm."
            ),
        ),
        (
            config.norm == "pre" and not config.has_final_norm,
            N_("No final norm: the lens applies the head alone."),
        ),
        (
            bool(config.parallel),
            N_(
                "Parallel sublayers: attention and feed-forward read the same stream. The point between them is that "
                "stream plus the output of attention; nothing reads it."
            ),
        ),
        (
            config.attention != "none" and isinstance(config.attention.mask, ByLayer),
            N_(
                "The blocks have different masks: the kinds of a head are told against uniform attention under its own "
                "mask; the numbers of uniform attention in the table are of all keys that any block sees."
            ),
        ),
        (
            not config.residual,
            N_(
                "No residual: each sublayer's output replaces the stream. The lens reads vectors that later blocks "
                "transform, and ablation by zeros cuts the path from the input to the output."
            ),
        ),
        (
            config.recurrence is not None,
            N_("An LSTM in the place of attention: no maps and no heads; its gates and its cell are not shown."),
        ),
        (
            not attends and config.recurrence is None,
            N_("No attention: no maps and no heads; each position predicts from its own token."),
        ),
    ]
