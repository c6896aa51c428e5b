"""The sweep: every place of a model patched from a second sentence, or zeroed, one at a time (activation patching).

A place is a part of the model at one position: the embedding, what a sublayer adds to the stream, or a head's weighted
sum of values (`attn.z`). With d = logit of one token − logit of another at one position, its effect is

    patched from a second sentence:  (d patched − d of the text) / (d of the other − d of the text)
    zeroed:                          d zeroed − d of the text

The first is the normalised logit difference (Zhang & Nanda 2024, *Towards Best Practices of Activation Patching*): 0
where nothing of the other sentence's difference is restored, 1 where all is. `web/src/page/sweep.ts` does the same.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal

import torch

from vitral.core.errors import UsageError
from vitral.data import Tokenizer
from vitral.inspection.edits import editor, edits_of
from vitral.inspection.lens import contribution_points
from vitral.inspection.numbers import PlainResult, number
from vitral.inspection.targets import text_tokens
from vitral.model import Transformer

APART = 1e-3
"""Differences of logits nearer to each other than this are equal: nothing can be restored."""
LISTED = 10
"""Cells in the text of a sweep: those with the largest effects."""


class Sweep(PlainResult):
    """What every place of a model does to the choice between two tokens; the module says how an effect is defined.

    Attributes:
        found: as plain data: `text`; `other`, the second sentence or None; `tokens`, the labels of the two tokens;
            `position`, at which their logits are read; `before` and `after`, the difference of these logits, of the
            text and of the other sentence; `cells`, place after place: the `place` (an activation, its head in
            brackets), the `position`, the `token` there, the `effect`.
    """

    def records(self) -> list[dict[str, Any]]:
        """The cells, one row for each."""
        return self.found["cells"]

    def __str__(self) -> str:
        """The cells with the largest effects."""
        most = sorted(self.records(), key=lambda cell: -abs(cell["effect"] or 0))[:LISTED]
        effects = ("–" if one["effect"] is None else f"{one['effect']:+.3f}" for one in most)
        return "\n".join(
            f"{effect}  {one['place']}  {one['position']} {one['token']}"
            for effect, one in zip(effects, most, strict=True)
        )

    def figure(self) -> Any:
        """The map as a figure of matplotlib: a row for each place, a column for each token."""
        return import_module("vitral.report.maps").effect_map(self.records())


def sweep_places(
    model: Transformer,
    tokenizer: Tokenizer,
    text: str,
    other: str | None = None,
    *,
    tokens: Sequence[str] | None = None,
    by: Literal["layer", "head"] = "layer",
    position: int = -1,
) -> Sweep:
    """Patch every place of a model at every position of a text, one at a time.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        text: what it reads.
        other: the sentence that the activations come from, with as many tokens; if None, places are zeroed.
        tokens: the two tokens whose logits are compared; if None, the likeliest of the text and of the other sentence,
            or the two likeliest of the text where these are the same.
        by: "layer": the embedding, and what each sublayer adds; "head": the `attn.z` of each head.
        position: at which the logits are read.

    Raises:
        UsageError: sentences of different lengths, or between which the difference of the two logits does not change; a
            text or tokens that the model cannot read; no such position; heads of a model without attention.
    """
    read = text_tokens(model, tokenizer, text)
    theirs = read if other is None else text_tokens(model, tokenizer, other)
    time = read.shape[1]
    if theirs.shape[1] != time:
        raise UsageError(
            "sweep: the sentences have {n} and {other} tokens; give two of equal length", n=time, other=theirs.shape[1]
        )
    if not -time <= position < time:
        raise UsageError("sweep: the positions are 0 to {last}, not {position}", last=time - 1, position=position)
    points, heads = contribution_points(model.config), range(model.config.num_heads)
    activations = {
        "layer": [(at, None) for at in ("embed", *points)],
        "head": [(at[:-3] + "z", [head]) for at in points if at.endswith("attn.out") for head in heads],
    }.get(by)
    if not activations:
        raise UsageError('sweep: by is "layer", or "head" of a model with attention, not {by!r}', by=by)
    kept = model.trace(torch.cat([read, theirs]), ["logits", *{at for at, _heads in activations}])
    logits = kept["logits"][:, position]
    likely = dict.fromkeys(logits.argsort(descending=True)[:, :2].T.flatten().tolist())
    pair = [int(token) for each in tokens for token in tokenizer.encode(each)] if tokens else [*likely][:2]
    if len(pair) != 2 or pair[0] == pair[1]:
        raise UsageError("sweep: tokens: expected two different tokens, not {given}", given=", ".join(tokens or ()))
    before, after = (row[pair[0]] - row[pair[1]] for row in logits.tolist())
    if other and abs(after - before) < APART:
        raise UsageError(
            "sweep: the difference of the two logits is {before:.3f} in both sentences: nothing can be restored; "
            "choose other tokens, or another sentence",
            before=before,
        )
    cells, how = list[dict[str, Any]](), {"do": "patch", "from": other} if other else {"do": "zero"}
    for at, of in activations:
        for index, token in enumerate(read[0].tolist()):
            edits = edits_of([{"at": at, "heads": of, "positions": [index], **how}])
            tap = editor(edits, dict.fromkeys(edits, kept[at][1:]) if other else {})
            row = model.trace(read, ["logits"], tap=tap)["logits"][0, position].tolist()
            effect = number((row[pair[0]] - row[pair[1]] - before) / (after - before if other else 1))
            cell = {"position": index, "token": tokenizer.label(token), "effect": effect}
            cells.append({"place": f"{at}{of or ''}", **cell})
    asked = {"text": text, "other": other, "tokens": [*map(tokenizer.label, pair)], "position": position % time}
    return Sweep({**asked, "before": number(before), "after": number(after), "cells": cells})
