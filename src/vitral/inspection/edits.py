"""Edits of named activations as data: the same JSON in Python, on the command line and in a page; a model with edits.

    [{"at": "blocks.1.attn.z", "heads": [3], "positions": "all", "do": "zero"}]

An activation is [batch, time, width], or [batch, heads, time, width] where it has heads. An edit replaces the numbers
of some heads at some positions in some columns before anything else is computed from them; edits of one activation
are made in their order. A key that the mask forbids, -inf in `attn.masked`, stays forbidden.
`web/src/page/edits.ts` does the same.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import torch
from jaxtyping import Int
from pydantic import Field, model_validator
from torch import Tensor

from vitral.core.config import Config, nearest, shown
from vitral.core.errors import UsageError
from vitral.core.files import read_capped, readable
from vitral.core.language import _
from vitral.core.names import aliases
from vitral.core.taps import SILENT, Editor
from vitral.data import Tokenizer
from vitral.inspection.lens import plain_predictions, seen_at_targets
from vitral.inspection.numbers import number
from vitral.inspection.targets import Scored, text_tokens
from vitral.model import Transformer

WHERE = "edits"
MOST_JSON = 1 << 20
"""Maximum size of a file of edits in bytes."""
MOST = (2 - 2**-23) * 2.0**127
"""The largest number of float32, which the models have."""
NEEDS = {"scale": "factor", "set": "value", "patch": "from"}
"""The key that a kind of edit needs; no other kind takes it."""
BETWEEN_POSITIONS = ("scores", "scaled", "masked", "weights")
"""Steps of attention whose last axis is positions too."""


Index = Annotated[int, Field(ge=0, lt=2**31)]
Indices = Annotated[tuple[Index, ...], Field(strict=False, min_length=1)]
"""Whole numbers from 0, at least one."""


class Edit(Config):
    """One edit of one named activation.

    Attributes:
        at: the activation, a name of `vitral.core.names`, or TransformerLens' name for it.
        heads: counted from 0; all if None. Keys and values have key-value heads, and some activations have none.
        positions: counted from 0, or "all".
        columns: places of the last axis, counted from 0; all if None.
        do: what becomes of the chosen numbers. "zero": 0. "mean": their mean over all positions of the sentence, for
            each head and feature (of `attn.masked`, over the positions where it is not -inf). "scale": times `factor`.
            "set": `value`. "patch": the same activation at the same positions and heads when the model reads another
            sentence, unedited.
        factor: of "scale".
        value: of "set".
        other: of "patch", the other sentence; `from` in JSON.
    """

    at: str
    do: Literal["zero", "mean", "scale", "set", "patch"]
    heads: Indices | None = None
    positions: Indices | Literal["all"] = "all"
    columns: Indices | None = None
    factor: float | None = None
    value: Annotated[float, Field(ge=-MOST, le=MOST)] | None = None
    other: str | None = Field(default=None, alias="from")

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> "Edit":
        given = {"factor": self.factor, "value": self.value, "from": self.other}
        needed = NEEDS.get(self.do)
        if needed is not None and given[needed] is None:
            raise ValueError(_("{do} needs the key {key!r}", do=self.do, key=needed))
        for key, value in given.items():
            if value is not None and key != needed:
                raise ValueError(_("{do} takes no key {key!r}", do=self.do, key=key))
        return self


Given = Sequence[Edit | Mapping[str, Any]]
"""Edits as people give them from Python: objects, or plain data."""


def edits_of(given: Any, where: str = WHERE) -> tuple[Edit, ...]:
    """Edits from plain data.

    Args:
        given: a list of tables, or of edits.
        where: the origin of the data, used in error messages.

    Raises:
        UsageError: a key or value is wrong; names the place, as in `edits.0: positions`.

    >>> edits_of([{"at": "embed", "do": "scale", "factor": 0.5, "positions": [1]}])[0].positions
    (1,)
    """
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise UsageError('{where}: expected a list, as in [{{"at": "embed", "do": "zero"}}]', where=where)
    made: list[Edit] = []
    for index, each in enumerate(cast("Sequence[Any]", given)):
        if not isinstance(each, Edit | Mapping):
            raise UsageError("{where}: expected a table, not {given}", where=f"{where}.{index}", given=shown(each))
        made.append(each if isinstance(each, Edit) else Edit.parse(cast("Any", each), f"{where}.{index}"))
    return tuple(made)


def read_edits(given: str) -> tuple[Edit, ...]:
    """Edits from JSON, or from a file of it: what begins with a bracket or a brace is JSON.

    Raises:
        UsageError: the file cannot be read, it is not JSON, or `edits_of` refuses what it says.
    """
    where, raw = WHERE, given
    if not given.lstrip().startswith(("[", "{")):
        with readable(Path(given)):
            where, raw = given, read_capped(Path(given), MOST_JSON).decode()
    try:
        plain = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError("{where}: not JSON ({error})", where=where, error=error) from None
    return edits_of(plain, where)


def require_fitting(edit: Edit, heads: Mapping[str, int], time: int, other: int | None = None) -> None:
    """Refuse an edit of what a model or a sentence does not have.

    The other sentence of a patch has as many tokens as this one; where single positions are named, it only needs to
    have these, unless the activation's last axis is positions as well.

    Args:
        edit: the edit.
        heads: the number of heads of every activation of the model, by name; 0 where it has no axis of heads.
        time: positions of the sentence.
        other: positions of the other sentence of a patch.

    Raises:
        UsageError: an unknown name, head or position, or another sentence that is too short or of another length;
            names the key, as in `heads: …`.
    """
    if edit.at not in heads:
        raise UsageError("at: no activation is called {name!r}, {hint}", name=edit.at, hint=nearest(edit.at, heads))
    head, last = max(edit.heads or [-1]), heads[edit.at] - 1
    if head > last and last < 0:
        raise UsageError("heads: {name} has no heads", name=edit.at)
    if head > last:
        raise UsageError("heads: {name} has the heads 0 to {last}, not {head}", name=edit.at, last=last, head=head)
    whole, position = edit.positions == "all", time - 1 if edit.positions == "all" else max(edit.positions)
    if position >= time:
        raise UsageError(
            "positions: the sentence has the positions 0 to {last}, not {position}", last=time - 1, position=position
        )
    as_long = whole or is_map(edit.at)
    if other is not None and (other != time if as_long else other <= position):
        raise UsageError(
            "from: the other sentence has {other} tokens; {name} needs {needed} here",
            other=other,
            name=edit.at,
            needed=time if as_long else position + 1,
        )


def existing(edits: Sequence[Edit], time: int, lengths: Mapping[str, int] | None = None) -> tuple[Edit, ...]:
    """The edits of a sentence that still grows: positions that do not exist yet are left out until they do.

    A patch counts where both sentences have a position; one between positions, such as `attn.weights`, only while the
    sentences are equally long.

    Args:
        edits: the edits.
        time: positions of the sentence so far.
        lengths: of the other sentences of patches, by their text.

    >>> existing(edits_of([{"at": "embed", "do": "zero", "positions": [1, 7]}]), 5)[0].positions
    (1,)
    >>> existing(edits_of([{"at": "embed", "do": "patch", "from": "ab"}]), 5, {"ab": 2})[0].positions
    (0, 1)
    """
    made: list[Edit] = []
    for edit in edits:
        other = (lengths or {}).get(edit.other or "") or time
        if other != time and is_map(edit.at):
            continue
        if edit.columns is not None and is_map(edit.at):
            edit = edit.model_copy(update={"columns": tuple(each for each in edit.columns if each < time)})
            if not edit.columns:
                continue
        if edit.positions == "all" and other == time:
            made.append(edit)
            continue
        both = range(min(time, other))
        chosen = both if edit.positions == "all" else edit.positions
        if here := tuple(each for each in chosen if each in both):
            made.append(edit.model_copy(update={"positions": here}))
    return tuple(made)


def is_map(name: str) -> bool:
    """Whether the last axis of an activation is positions too."""
    return name.endswith(tuple(f".attn.{step}" for step in BETWEEN_POSITIONS))


def editor(edits: Sequence[Edit], others: Mapping[Edit, Tensor]) -> Editor:
    """A tap that makes the edits, and raises a UsageError where an activation does not have the columns of an edit.

    Args:
        edits: of any activations, in the order in which those of one activation are made.
        others: the other sentence's activation of each patch.
    """

    def made(value: Tensor, at: str) -> Tensor:
        for index, edit in enumerate(edits):
            if edit.at != at:
                continue
            width = value.shape[-1]
            if edit.columns and max(edit.columns) >= width:
                where = f"{WHERE}.{index}"
                raise UsageError(
                    "{where}: columns: {name} has {width} columns, counted from 0", where=where, name=at, width=width
                )
            value = edited(value, edit, others.get(edit))
        return value

    return Editor({edit.at: partial(made, at=edit.at) for edit in edits})


def edited(value: Tensor, edit: Edit, other: Tensor | None = None) -> Tensor:
    """An activation after one edit.

    Args:
        value: [batch, time, width] or [batch, heads, time, width].
        edit: what to do.
        other: of a patch, the other sentence's activation, with a batch of 1.
    """
    positions = None if edit.positions == "all" else edit.positions
    if other is not None:
        # What lies behind the sentence's end is not read; the axes before and after are the same.
        fitting = other[..., : value.shape[-2], :].to(value)
        missing = value.shape[-2] - fitting.shape[-2]
        new = torch.nn.functional.pad(fitting, (0, 0, 0, missing)) if missing else fitting
    elif edit.do == "scale":
        new = value * cast("float", edit.factor)
    elif edit.do == "mean":
        new = _mean(value)
    else:
        new = torch.full_like(value, 0.0 if edit.do == "zero" else cast("float", edit.value))
    new = torch.where(value == -torch.inf, value, new)
    if edit.columns is not None:
        columns, new, whole = list(edit.columns), value.clone(), new
        new[..., columns] = whole[..., columns]
    return replaced(value, new, edit.heads, positions)


def replaced(
    value: Tensor, new: Tensor, heads: Sequence[int] | None = None, positions: Sequence[int] | None = None
) -> Tensor:
    """`value` with the numbers of `new`, everywhere or at some heads and positions.

    Args:
        value: [batch, time, width] or [batch, heads, time, width].
        new: broadcasts to the same shape.
        heads: of the second axis of four; all if None.
        positions: of the axis before the last; all if None.
    """
    new = new.expand_as(value)
    if heads is None and positions is None:
        return new
    changed = value.clone()
    rows = list(range(value.shape[-2])) if positions is None else list(positions)
    if heads is None:
        changed[..., rows, :] = new[..., rows, :]
    else:
        chosen = torch.tensor(list(heads), device=value.device)[:, None]
        changed[:, chosen, rows] = new[:, chosen, rows]
    return changed


def _mean(value: Tensor) -> Tensor:
    """The mean over the positions, in float64 where the device has it, of what is not -inf."""
    exact = value.double() if value.device.type != "mps" else value.float()
    counted = exact != -torch.inf
    total = torch.where(counted, exact, 0.0).sum(dim=-2, keepdim=True)
    return (total / counted.sum(dim=-2, keepdim=True).clamp(min=1)).to(value)


OF_QUERIES = (*BETWEEN_POSITIONS, "q", "q_pre", "z")
OF_KEYS = ("k", "k_pre", "v")
Encode = Callable[[str], Tensor]
"""A sentence as tokens, [1, time]."""


def heads_by_name(model: Transformer) -> dict[str, int]:
    """The number of heads of each activation of a model, by name; 0 where it has no axis of heads."""
    counts = {f"{kind}.{step}": model.config.num_heads for kind in ("attn", "cross") for step in OF_QUERIES}
    counts |= {f"{kind}.{step}": model.config.kv_heads for kind in ("attn", "cross") for step in OF_KEYS}
    return {name: counts.get(".".join(name.split(".")[-2:]), 0) for name in model.activation_names}


def editing_tap(
    model: Transformer,
    time: int,
    edits: Sequence[Edit],
    encode: Encode | None = None,
    source: Int[Tensor, "batch source"] | None = None,
) -> Editor:
    """The tap that makes edits while a model reads a sentence of `time` tokens.

    Args:
        model: in evaluation mode.
        time: tokens of the sentence.
        edits: from `vitral.inspection.edits.edits_of`.
        encode: makes the tokens of the other sentences of patches.
        source: encoder-decoder only: what is read beside these.

    Raises:
        UsageError: an edit does not fit the model or the sentence; names the place, as in `edits.0: heads`.
    """
    heads, others = heads_by_name(model), dict[Edit, Tensor]()
    own = aliases(heads) | {name: name for name in heads}
    edits = [edit.model_copy(update={"at": own.get(edit.at, edit.at)}) for edit in edits]
    for index, edit in enumerate(edits):
        here = source.shape[1] if source is not None and edit.at.startswith("encoder.") else time
        try:
            require_fitting(edit, heads, here)
            if edit.other is not None and edit.at.startswith("encoder."):
                raise UsageError("{at}: the encoder reads the source, which no other sentence changes", at=edit.at)
            if edit.other is not None and encode is not None:
                tokens = encode(edit.other).expand(1 if source is None else len(source), -1)
                require_fitting(edit, heads, here, tokens.shape[1])
                others[edit] = model.trace(tokens, [edit.at], source=source)[edit.at]
        except UsageError as error:
            where = f"{WHERE}.{index}"
            raise UsageError("{where}: {complaint}", where=where, complaint=error) from None
    return editor(edits, others)


def effect_of_edits(
    model: Transformer,
    tokenizer: Tokenizer,
    scored: Scored,
    edits: Sequence[Edit],
    *,
    top: int = 5,
) -> dict[str, Any]:
    """What edits change of a model's predictions on a text.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        scored: the text with its targets, as of `text_targets`.
        edits: from `vitral.inspection.edits.edits_of`.
        top: how many of the most probable tokens are listed.

    Returns:
        `edits` as plain data; `loss` and `edited_loss`, the mean over the targets in nats per token, None without any;
        `positions`: for each position `before` and `after`, each with `top` ([{"id", "label", "probability"}]),
        `probability`, `rank` and `loss` of the true token (None where there is none), and `divergence`, the
        Kullback-Leibler divergence of the edited prediction from the unedited one, in nats.

    Raises:
        UsageError: an edit that does not fit, or that needs a text which the model cannot read.
    """
    tap = editing_tap(model, scored.inputs.shape[1], edits, lambda other: text_tokens(model, tokenizer, other))
    logits = {
        kind: seen_at_targets(model, scored, ["logits"], each)["logits"][0].cpu()
        for kind, each in (("before", SILENT), ("after", tap))
    }
    targets = scored.targets.amax(dim=0).cpu()
    predictions = {kind: plain_predictions(each, targets, tokenizer, top) for kind, each in logits.items()}
    before, after = (each.double().log_softmax(dim=-1) for each in logits.values())
    apart = (before.exp() * (before - after)).sum(dim=-1)
    return {
        "edits": [edit.plain() for edit in edits],
        "loss": predictions["before"]["loss"],
        "edited_loss": predictions["after"]["loss"],
        "positions": [
            {"before": one, "after": other, "divergence": number(divergence)}
            for one, other, divergence in zip(
                predictions["before"]["positions"], predictions["after"]["positions"], apart.tolist(), strict=True
            )
        ],
    }
