"""What `vitral inspect` found, as tables and as one self-contained page; everything from the plain data alone."""

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup, escape

from vitral.core.language import N_, _, ngettext, number
from vitral.core.text import NONE, capital, visible
from vitral.inspection.attention import KINDS, NAMED_FROM
from vitral.report.folder import ReportFolder
from vitral.report.html import page
from vitral.report.sections import CellTable, Details, Formula, Heading, Listing, Paragraph, Section
from vitral.report.tables import Table, decimals

Inspection = dict[str, Any]
"""What `vitral.inspection.inspect_text` returns, with `run` and `step`."""
RIGHT = "✓"
WAYS = (N_("zero"), N_("mean"))
"""What the output of a part is replaced by."""
SUBLAYERS = {"attention": N_("attention"), "recurrence": N_("recurrence"), "feed_forward": N_("feed-forward")}

WORTH = N_(
    "The increase of the loss in nats per token when the output of a part is replaced at every position by zeros, or "
    "by its mean over all positions. Positive: the model is worse without it. Parts work together, so the increases "
    "do not add up."
)
HEADS = N_(
    "A head is named after the kind of key on which it has most weight beyond uniform attention, or “broad” where "
    "that is less than {share:.2f} more. Shares are means over the queries that see enough keys."
)
MAPS = N_("A row is a query and sums to 1; a column is a key. Cells without weight are blank.")
RELEVANCE = N_(
    "Each earlier token is replaced by others of the text, and the predictions before and after are compared "
    "(Kullback-Leibler divergence). A reading that ranks the tokens as this effect does has the rank correlation 1. "
    "Near tokens matter more and have more weight, so the second column is what a reading says beyond the distance. In "
    "parentheses: the 95% interval over windows."
)
LENS = N_(
    "The stream after the embedding and after every sublayer, read as if it were the last: final norm, then head. "
    "Each cell has the most probable token, shaded by its probability; a tick marks the true one. Choose a cell for "
    "the probabilities. The last point is the model's own prediction."
)
NORMS = N_(
    "Euclidean norm of the stream after every sublayer, and of what each sublayer adds to it; means over the positions."
)


def inspection_page(data: Inspection) -> str:
    """The whole page: ablations, kinds of heads, attention maps, logit lens, residual norms."""
    sections: list[Section] = [Listing(tuple(map(_, data["notes"])))] if data["notes"] else []
    changed = edits_table(data)
    sections += [Heading(_("What the edits change")), changed] if changed is not None else []
    sections += [*_worth(data), *_attention(data), *_relevance(data), *_lens(data), *_norms(data)]
    title = _("Inside {run}", run=data["run"].rstrip("/").rpartition("/")[2])
    return page(title, sections, lead=summary(data), footer=_("Made by Vitral."))


def summary(data: Inspection) -> str:
    """The text, the run, and the loss, in two or three sentences."""
    count, measured = len(data["tokens"]), data["measured_on"]
    parts = [
        ngettext(
            "{text!r} ({number} token), run {run}, step {step:,}.",
            "{text!r} ({number} tokens), run {run}, step {step:,}.",
            count,
            text=data["text"],
            number=count,
            run=data["run"],
            step=data["step"],
        )
    ]
    if (final := data["lens"]["points"][-1]["loss"]) is not None:
        parts.append(_("Loss on the text: {loss:.3f} nats per token.", loss=final))
    if measured["what"] == "windows":
        windows = _(
            "Ablations and kinds of heads are measured on {rows} windows of {length} tokens of the test split (loss "
            "{loss}).",
            rows=measured["rows"],
            length=measured["length"],
            loss=_fixed((data["ablation"] or {}).get("loss")),
        )
        parts.append(windows)
    return " ".join(parts)


def tables(data: Inspection) -> list[Table]:
    """The tables of a terminal and of a notebook; that of a new measure stands before the norms, which are the last."""
    every = (edits_table(data), sublayer_table(data), head_table(data), relevance_table(data), norm_table(data))
    return [one for one in every if one is not None]


def edits_table(data: Inspection) -> Table | None:
    """What the edits change of the prediction at each position; None without edits."""
    edited = data.get("edited")
    if edited is None:
        return None
    rows = []
    for token, target, seen in zip(token_names(data), data["lens"]["targets"], edited["positions"], strict=True):
        best = (best_token(seen[kind], target) for kind in ("before", "after"))
        losses = (seen["before"]["loss"], seen["after"]["loss"], seen["divergence"])
        rows.append((token, _label(target), *best, *map(_fixed, losses)))
    rows.append((_("mean"), NONE, NONE, NONE, _fixed(edited["loss"]), _fixed(edited["edited_loss"]), NONE))
    columns = (_("position"), _true(data), _("most probable"), _("edited"), _("loss"), _("edited loss"))
    caption = ngettext(
        "What {n} edit changes (loss and Kullback-Leibler divergence in nats)",
        "What {n} edits change (loss and Kullback-Leibler divergence in nats)",
        len(edited["edits"]),
        n=len(edited["edits"]),
    )
    return Table(caption, (*columns, _("divergence")), rows, prose=(1, 2, 3))


def _true(data: Inspection) -> str:
    return _("true next") if data["objective"] == "next-token" else _("true masked")


def sublayer_table(data: Inspection) -> Table | None:
    """What each sublayer and each block is worth, a row for each block; None where nothing was ablated."""
    blocks = (data["ablation"] or {}).get("blocks")
    shown = {key: _(name) for key, name in SUBLAYERS.items() if blocks and blocks[0].get(key) is not None}
    if not shown:
        return None
    shown |= {"block": _("both")} if len(shown) == 2 else {}
    rows = [(str(block["layer"]), *(cell for key in shown for cell in _effects(block[key]))) for block in blocks or ()]
    columns = (_("block"), *(f"{name}, {_(way)}" for name in shown.values() for way in WAYS))
    return Table(_("Loss increase without a sublayer, or both (nats per token)"), columns, rows)


def head_table(data: Inspection) -> Table | None:
    """Kind and worth of every head; None for a model without attention."""
    kinds, blocks = data["kinds"], (data["ablation"] or {}).get("blocks")
    rows = []
    for layer, heads in enumerate(kinds["layers"]):
        for head, seen in enumerate(heads):
            shares = (_fixed(of.get(seen["kind"]), 2) for of in (seen["share"], kinds["uniform"]))
            worth = _effects(blocks[layer]["heads"][head]) if blocks else (NONE, NONE)
            rows.append((f"{layer}.{head}", _(seen["kind"]), *shares, _fixed(seen["distance"], 1), *worth))
    columns = (_("block.head"), _("kind"), _("weight on it"), _("if uniform"), _("distance"), *map(_, WAYS))
    caption = _("Heads: kind of key attended to, and loss increase without the head (nats per token)")
    return Table(caption, columns, rows, prose=(1,)) if rows else None


def relevance_table(data: Inspection) -> Table | None:
    """How well each reading ranks the earlier tokens by their effect; None where it was not measured."""
    relevance = data["relevance"]
    if relevance is None:
        return None
    readings = {_("1 / distance"): relevance["distance"], _("gradient × input"): relevance["gradient"]}
    for block, layer in enumerate(relevance["layers"]):
        readings[_("weight, block {block}", block=block)] = layer["weight"]
        readings[_("rollout to block {block}", block=block)] = layer["rollout"]
    if (head := relevance["best_head"]) is not None:
        readings[_("weight, head {place}", place=f"{head['layer']}.{head['head']}")] = head
    rows = [
        (name, *(_interval(one[key]) for key in ("correlation", "given_distance"))) for name, one in readings.items()
    ]
    columns = (_("reading"), _("correlation"), _("given the distance"))
    return Table(_("Rank correlation with the effect of replacing an earlier token"), columns, rows)


def _interval(data: dict[str, float | None]) -> str:
    mean, low, high = (_fixed(data[key], 2) for key in ("mean", "low", "high"))
    return mean if data["low"] is None else _("{mean} ({low} to {high})", mean=mean, low=low, high=high)


def norm_table(data: Inspection) -> Table:
    """Mean norms of the stream, and of what was added just before."""
    added = {_after(point["point"]): point["mean"] for point in data["norms"]["added"]}
    rows = [
        (point["point"], _fixed(point["mean"]), _fixed(added.get(point["point"]))) for point in data["norms"]["stream"]
    ]
    columns = (_("point"), _("stream"), _("added by the sublayer"))
    return Table(_("Norms, mean over the positions"), columns, rows)


def _after(output: str) -> str:
    """The point of the stream to which an output is added."""
    block = output.rpartition(".")[0].rpartition(".")[0]
    return f"{block}.resid_{'post' if 'mlp' in output else 'mid'}"


def point_label(point: str, mixer: str = "attn") -> str:
    """A point of the stream in few characters; `mixer` names the part of a block that mixes positions.

    >>> [point_label(point) for point in ("embed", "blocks.3.resid_mid", "blocks.3.resid_post")]
    ['embed', '3 attn', '3 mlp']
    """
    if not point.startswith("blocks."):
        return point
    _blocks, layer, name = point.split(".")
    return f"{layer} {mixer if name == 'resid_mid' else 'mlp'}"


def mixer(data: Inspection) -> str:
    """The part of each block that mixes positions, in few characters."""
    return data["model"].get("recurrence") or "attn"


def token_names(data: Inspection) -> list[str]:
    """The tokens of the text with their positions.

    >>> token_names({"tokens": [{"id": 3, "label": "a"}]})
    ['0 a']
    """
    return [f"{position} {token['label']}" for position, token in enumerate(data["tokens"])]


def best_token(position: dict[str, Any], target: dict[str, Any] | None) -> str:
    """The most probable token, with a tick where it is the true one."""
    first = position["top"][0]
    return f"{first['label']} {RIGHT}" if target is not None and first["id"] == target["id"] else first["label"]


def _label(target: dict[str, Any] | None) -> str:
    return NONE if target is None else target["label"]


def _effects(effects: dict[str, dict[str, float | None]]) -> list[str]:
    """The increase of the loss for each of the `WAYS`, with its error."""
    cells = []
    for increase, error in ((effects[way]["increase"], effects[way]["error"]) for way in WAYS):
        beside = "" if increase is None or error is None else f"\u00a0±\u00a0{number(error, '.3f')}"
        cells.append(decimals(3, sign=True)(increase) + beside)
    return cells


def _fixed(value: float | None, digits: int = 3) -> str:
    return decimals(digits)(value)


def _worth(data: Inspection) -> Iterator[Section]:
    sublayers, heads = sublayer_table(data), head_table(data)
    errors = f" {_('After ±: the standard error over the windows.')}" * (data["measured_on"]["what"] == "windows")
    if sublayers is not None:
        yield from (Heading(_("What each part is worth")), Paragraph(_(WORTH) + errors), sublayers)
    if heads is not None:
        kinds = tuple(f"{_(kind)}: {_(meaning)}" for kind, meaning in KINDS.items())
        yield from (Heading(_("Heads")), Paragraph(_(HEADS, share=NAMED_FROM)))
        yield from (Details(_("The kinds of keys"), (Listing(kinds),)), heads, _shares(data))


def _shares(data: Inspection) -> Table:
    """The share of each kind in each head."""
    uniform = data["kinds"]["uniform"]
    rows = {_("uniform"): uniform}
    for layer, heads in enumerate(data["kinds"]["layers"]):
        rows |= {f"{layer}.{head}": seen["share"] for head, seen in enumerate(heads)}
    caption = _(
        "Share of the weight on each kind of key; the first row is a head with equal weights on all visible keys."
    )
    shares = [(name, *(_fixed(share[kind], 2) for kind in uniform)) for name, share in rows.items()]
    return Table(caption, (_("block.head"), *map(_, uniform)), shares)


def _attention(data: Inspection) -> Iterator[Section]:
    from vitral.report.maps import attention_maps

    labels = [token["label"] for token in data["tokens"]]
    if data["attention"]:
        yield from (Heading(_("Attention maps")), Paragraph(_(MAPS)))
    for layer in data["attention"]:
        block, heads = layer["layer"], layer["heads"]
        drawn = attention_maps(heads, labels, title=_("Block {block}", block=block))
        alt = _("Attention weights of the {heads} heads of block {block}, as heat maps.", heads=len(heads), block=block)
        yield ReportFolder().figure(drawn, "", _("Attention weights of block {block}.", block=block), alt)


def _relevance(data: Inspection) -> Iterator[Section]:
    if (table := relevance_table(data)) is not None:
        yield from (Heading(_("Is a weight relevance?")), Paragraph(_(RELEVANCE)), table)


def _lens(data: Inspection) -> Iterator[Section]:
    """The most probable token at each point and position, and the probabilities of a chosen cell."""
    points, targets = data["lens"]["points"], data["lens"]["targets"]
    rows, workings, heat = [], [], []
    for position, (token, target) in enumerate(zip(token_names(data), targets, strict=True)):
        seen = [point["positions"][position] for point in points]
        rows.append((token, *(best_token(one, target) for one in seen), _label(target)))
        at_points = zip(points, seen, strict=True)
        workings.append(
            (*(_working(f"{point['point']}", token, one, target, _true(data)) for point, one in at_points), None)
        )
        heat.append((*(one["top"][0]["probability"] or 0.0 for one in seen), 0.0))
    chosen = (max((position for position, target in enumerate(targets) if target), default=0), len(points) - 1)
    if any(targets):
        rows.append((_("loss (nats per token)"), *(_fixed(point["loss"]) for point in points), ""))
        workings.append((None,) * (len(points) + 1))
        heat.append((0.0,) * (len(points) + 1))
    columns = (_("position"), *(point_label(point["point"], mixer(data)) for point in points), _true(data))
    yield from (Heading(_("Logit lens")), Paragraph(_(LENS)))
    yield CellTable(_("Most probable token"), columns, tuple(rows), tuple(workings), chosen, tuple(heat))


def _working(point: str, token: str, position: dict[str, Any], target: dict[str, Any] | None, true: str) -> Formula:
    """The most probable tokens of one cell with their probabilities, and how the true one fares."""

    def share(probability: float | None) -> str:
        return NONE if probability is None else number(probability, ".3g")

    likely = " · ".join(f"{each['label']} {share(each['probability'])}" for each in position["top"])
    lines = [_("{point}, position {token}: {tokens}", point=point, token=token, tokens=likely)]
    if target is not None:
        fares = _(
            "{true}: {token}, probability {probability}, rank {rank}, {loss} nats.",
            true=capital(true),
            token=target["label"],
            probability=share(position["probability"]),
            rank=position["rank"],
            loss=_fixed(position["loss"]),
        )
        lines.append(fares)
    written = Markup("").join(Markup("<p>{}</p>").format(escape(visible(line))) for line in lines)
    return Formula(str(written), " ".join(lines))


def _norms(data: Inspection) -> Iterator[Section]:
    yield from (Heading(_("Residual norms")), Paragraph(_(NORMS)), norm_table(data))
    every = [*data["norms"]["stream"], *data["norms"]["added"]]
    rows = [
        (token, *(_fixed(point["positions"][position], 2) for point in every))
        for position, token in enumerate(token_names(data))
    ]
    table = Table(_("Norm by position"), (_("position"), *(point["point"] for point in every)), rows)
    yield Details(_("Norms at every position"), (table,))
