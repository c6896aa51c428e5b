"""A model with edited activations: the trace of a sentence, and what the edits change of its predictions."""

from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.taps import SILENT, Editor
from vitral.data import Tokenizer
from vitral.evaluation import Masking
from vitral.inspection.edit_data import BETWEEN_POSITIONS, WHERE, Edit, editor, require_fitting
from vitral.inspection.lens import plain_predictions, seen_at_targets
from vitral.inspection.numbers import number
from vitral.inspection.targets import text_targets, text_tokens
from vitral.model import Transformer

OF_QUERIES = (*BETWEEN_POSITIONS, "q", "q_pre", "z")
OF_KEYS = ("k", "k_pre", "v")
Encode = Callable[[str], Tensor]
"""A sentence as tokens, [1, time]."""


def heads_by_name(model: Transformer) -> dict[str, int]:
    """The number of heads of each activation of a model, by name; 0 where it has no axis of heads."""
    counts = {f"attn.{step}": model.config.num_heads for step in OF_QUERIES}
    counts |= {f"attn.{step}": model.config.kv_heads for step in OF_KEYS}
    return {name: counts.get(name.partition(".")[2].partition(".")[2], 0) for name in model.activation_names}


def editing_tap(model: Transformer, time: int, edits: Sequence[Edit], encode: Encode | None = None) -> Editor:
    """The tap that makes edits while a model reads a sentence of `time` tokens.

    Args:
        model: in evaluation mode.
        time: tokens of the sentence.
        edits: from `vitral.inspection.edit_data.edits_of`.
        encode: makes the tokens of the other sentences of patches.

    Raises:
        UsageError: an edit does not fit the model or the sentence; names the place, as in `edits.0: heads`.
    """
    heads, others = heads_by_name(model), dict[Edit, Tensor]()
    for place, edit in enumerate(edits):
        try:
            require_fitting(edit, heads, time)
            if edit.other is not None and encode is not None:
                tokens = encode(edit.other)
                require_fitting(edit, heads, time, tokens.shape[1])
                others[edit] = model.trace(tokens, [edit.at])[edit.at]
        except UsageError as error:
            where = f"{WHERE}.{place}"
            raise UsageError("{where}: {complaint}", where=where, complaint=error) from None
    return editor(edits, others)


def edited_trace(
    model: Transformer,
    tokens: Int[Tensor, "batch time"],
    names: Sequence[str] | None = None,
    edits: Sequence[Edit] = (),
    encode: Encode | None = None,
) -> dict[str, Tensor]:
    """The activations of one forward pass by name, all or only `names`, with edits made on the way.

    Args:
        model: in evaluation mode.
        tokens: what it reads.
        names: as in `vitral.core.names`; all if None.
        edits: an edited activation is returned as it is after its edits.
        encode: makes the tokens of the other sentences of patches.

    Raises:
        UsageError: a name that no activation has, or an edit that does not fit.
    """
    return model.trace(tokens, names, tap=editing_tap(model, tokens.shape[1], edits, encode) if edits else None)


def effect_of_edits(
    model: Transformer,
    tokenizer: Tokenizer,
    text: str,
    edits: Sequence[Edit],
    *,
    top: int = 5,
    masking: Masking | None = None,
) -> dict[str, Any]:
    """What edits change of a model's predictions on a text.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        text: what it reads; of a masked language model, each position is masked in turn.
        edits: from `vitral.inspection.edit_data.edits_of`.
        top: how many of the most probable tokens are listed.
        masking: of a masked language model.

    Returns:
        `edits` as plain data; `loss` and `edited_loss`, the mean over the targets in nats per token, None without any;
        `positions`: for each position `before` and `after`, each with `top` ([{"id", "label", "probability"}]),
        `probability`, `rank` and `loss` of the true token (None where there is none), and `divergence`, the
        Kullback-Leibler divergence of the edited prediction from the unedited one, in nats.

    Raises:
        UsageError: an edit that does not fit; an empty text, one longer than the context, a character without a token.
    """
    tokens = text_tokens(model, tokenizer, text)
    scored = text_targets(model, tokens, masking)
    targets = (scored.targets[0] if masking is None else tokens[0]).cpu()
    tap = editing_tap(model, tokens.shape[1], edits, lambda other: text_tokens(model, tokenizer, other))
    logits = {
        kind: seen_at_targets(model, scored, masking, ["logits"], each)["logits"][0].cpu()
        for kind, each in (("before", SILENT), ("after", tap))
    }
    told = {kind: plain_predictions(each, targets, tokenizer, top) for kind, each in logits.items()}
    before, after = (each.double().log_softmax(dim=-1) for each in logits.values())
    apart = (before.exp() * (before - after)).sum(dim=-1)
    return {
        "edits": [edit.plain() for edit in edits],
        "loss": told["before"]["loss"],
        "edited_loss": told["after"]["loss"],
        "positions": [
            {"before": one, "after": other, "divergence": number(divergence)}
            for one, other, divergence in zip(
                told["before"]["positions"], told["after"]["positions"], apart.tolist(), strict=True
            )
        ],
    }
