"""What `vitral inspect` found, as tables and as one self-contained page; everything from the plain data alone."""

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup, escape

from vitral.core.language import N_, _, ngettext, number
from vitral.core.text import visible
from vitral.inspection import KINDS, NAMED_FROM
from vitral.report.html import page
from vitral.report.sections import CellTable, Details, Figure, Formula, Heading, Listing, Paragraph, Section, Table

Found = dict[str, Any]
"""What `vitral.inspection.inspect_text` returns, with `run` and `step`."""
Effects = dict[str, dict[str, float | None]]

MINUS = "−"
NONE = "–"
"""A cell without a number."""
RIGHT = "✓"
MOST_GRID_ROWS = 64
"""More heads are not drawn as one grid."""
WAYS = (N_("zero"), N_("mean"))
"""What the output of a part is replaced by."""

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
LENS = N_(
    "The stream after the embedding and after every sublayer, read as if it were the last: final norm, then head. "
    "Each cell has the most probable token, shaded by its probability; a tick marks the true one. Choose a cell for "
    "the probabilities. The last point is the model's own prediction."
)
NORMS = N_(
    "Euclidean norm of the stream after every sublayer, and of what each sublayer adds to it; means over the positions."
)


def inspection_page(found: Found) -> str:
    """The whole page: ablations, kinds of heads, attention maps, logit lens, residual norms."""
    sections: list[Section] = [Listing(tuple(map(_, found["notes"])))] if found["notes"] else []
    changed = edits_table(found)
    sections += [Heading(_("What the edits change")), changed] if changed is not None else []
    sections += [*_worth(found), *_attention(found), *_lens(found), *_norms(found)]
    title = _("Inside {run}", run=found["run"].rstrip("/").rpartition("/")[2])
    return page(title, sections, lead=summary(found), footer=_("Made by Vitral."))


def summary(found: Found) -> str:
    """The text, the run, and the loss, in two or three sentences."""
    count, measured = len(found["tokens"]), found["measured_on"]
    read = ngettext(
        "{text!r} ({number} token), run {run}, step {step:,}.",
        "{text!r} ({number} tokens), run {run}, step {step:,}.",
        count,
        text=found["text"],
        number=count,
        run=found["run"],
        step=found["step"],
    )
    parts = [read]
    final = found["lens"]["points"][-1]["loss"]
    if final is not None:
        parts.append(_("Loss on the text: {loss:.3f} nats per token.", loss=final))
    if measured["what"] == "windows":
        parts.append(
            _(
                "Ablations and kinds of heads are measured on {rows} windows of {length} tokens of the test "
                "split (loss {loss}).",
                rows=measured["rows"],
                length=measured["length"],
                loss=_fixed((found["ablation"] or {}).get("loss")),
            )
        )
    return " ".join(parts)


def tables(found: Found) -> list[Table]:
    """The tables of a terminal and of a notebook; that of a new measure stands before the norms, which are the last."""
    every = (edits_table(found), sublayer_table(found), head_table(found), norm_table(found))
    return [one for one in every if one is not None]


def edits_table(found: Found) -> Table | None:
    """What the edits change of the prediction at each position; None without edits."""
    if "edited" not in found:
        return None
    edited, targets = found["edited"], found["lens"]["targets"]
    rows = [
        (
            token,
            _label(target),
            *(best_token(seen[kind], target) for kind in ("before", "after")),
            *(_fixed(seen[kind]["loss"]) for kind in ("before", "after")),
            _fixed(seen["divergence"]),
        )
        for token, target, seen in zip(token_names(found), targets, edited["positions"], strict=True)
    ]
    mean = (_("mean"), NONE, NONE, NONE, _fixed(edited["loss"]), _fixed(edited["edited_loss"]), NONE)
    columns = (
        *(_("position"), _("true next") if found["objective"] == "next-token" else _("true masked")),
        *(_("most probable"), _("edited"), _("loss"), _("edited loss"), _("divergence")),
    )
    count = len(edited["edits"])
    caption = ngettext(
        "What {n} edit changes (loss and Kullback-Leibler divergence in nats)",
        "What {n} edits change (loss and Kullback-Leibler divergence in nats)",
        count,
        n=count,
    )
    return Table(caption, columns, (*rows, mean), prose=(1, 2, 3))


def sublayer_table(found: Found) -> Table | None:
    """What each sublayer and each block is worth, a row for each block; None where nothing was ablated."""
    blocks = (found["ablation"] or {}).get("blocks")
    if not blocks:
        return None
    there = [key for key in ("attention", "recurrence", "feed_forward") if blocks[0].get(key) is not None]
    shown = [*there, "block"] if len(there) == 2 else there
    names = {"attention": _("attention"), "recurrence": _("recurrence"), "feed_forward": _("feed-forward")}
    names["block"] = _("both")
    columns = (_("block"), *(f"{names[key]}, {_(way)}" for key in shown for way in WAYS))
    rows = [(str(block["layer"]), *(cell for key in shown for cell in _effects(block[key]))) for block in blocks]
    caption = _("Loss increase without a sublayer, or both (nats per token)")
    return Table(caption, columns, tuple(rows)) if shown else None


def head_table(found: Found) -> Table | None:
    """Kind and worth of every head; None for a model without attention."""
    kinds, blocks = found["kinds"], (found["ablation"] or {}).get("blocks")
    rows = []
    for layer, heads in enumerate(kinds["layers"]):
        for head, seen in enumerate(heads):
            own, even = seen["share"].get(seen["kind"]), kinds["uniform"].get(seen["kind"])
            worth = _effects(blocks[layer]["heads"][head]) if blocks else (NONE, NONE)
            weights = (_fixed(own, 2), _fixed(even, 2), _fixed(seen["distance"], 1))
            rows.append((f"{layer}.{head}", _(seen["kind"]), *weights, *worth))
    columns = (_("block.head"), _("kind"), _("weight on it"), _("if uniform"), _("distance"), *map(_, WAYS))
    caption = _("Heads: kind of key attended to, and loss increase without the head (nats per token)")
    return Table(caption, columns, tuple(rows), prose=(1,)) if rows else None


def norm_table(found: Found) -> Table:
    """Mean norms of the stream, and of what was added just before."""
    added = {point["point"]: point["mean"] for point in found["norms"]["added"]}
    rows = []
    for point in found["norms"]["stream"]:
        mixed = point["point"].replace("resid_mid", "recurrence.out")
        before = point["point"].replace("resid_mid", "attn.out").replace("resid_post", "mlp.out")
        rows.append((point["point"], _fixed(point["mean"]), _fixed(added.get(before, added.get(mixed)))))
    columns = (_("point"), _("stream"), _("added by the sublayer"))
    return Table(_("Norms, mean over the positions"), columns, tuple(rows))


def point_label(point: str, mixer: str = "attn") -> str:
    """A point of the stream in few characters; `mixer` names the part of a block that mixes positions.

    >>> [point_label(point) for point in ("embed", "blocks.3.resid_mid", "blocks.3.resid_post")]
    ['embed', '3 attn', '3 mlp']
    """
    if not point.startswith("blocks."):
        return point
    _blocks, layer, name = point.split(".")
    return f"{layer} {mixer if name == 'resid_mid' else 'mlp'}"


def mixer(found: Found) -> str:
    """The part of each block that mixes positions, in few characters."""
    return found["model"].get("recurrence") or "attn"


def token_names(found: Found) -> list[str]:
    """The tokens of the text with their positions.

    >>> token_names({"tokens": [{"id": 3, "label": "a"}]})
    ['0 a']
    """
    return [f"{place} {token['label']}" for place, token in enumerate(found["tokens"])]


def best_token(position: dict[str, Any], target: dict[str, Any] | None) -> str:
    """The most probable token, with a tick where it is the true one."""
    first = position["top"][0]
    return f"{first['label']} {RIGHT}" if target is not None and first["id"] == target["id"] else first["label"]


def _effects(effects: Effects) -> tuple[str, str]:
    return _effect(effects["zero"]), _effect(effects["mean"])


def _effect(effect: dict[str, float | None]) -> str:
    increase, error = effect["increase"], effect["error"]
    if increase is None:
        return NONE
    written = number(increase, "+.3f").replace("-", MINUS)
    return written if error is None else f"{written}\u00a0±\u00a0{number(error, '.3f')}"


def _fixed(value: float | None, digits: int = 3) -> str:
    return NONE if value is None else number(value, f".{digits}f")


def _worth(found: Found) -> Iterator[Section]:
    sublayers, heads = sublayer_table(found), head_table(found)
    errors = _("After ±: the standard error over the windows.")
    if sublayers is not None:
        yield Heading(_("What each part is worth"))
        yield Paragraph(f"{_(WORTH)} {errors}" if found["measured_on"]["what"] == "windows" else _(WORTH))
        yield sublayers
    if heads is not None:
        yield Heading(_("Heads"))
        yield Paragraph(_(HEADS, share=NAMED_FROM))
        kinds = tuple(f"{_(kind)}: {_(meaning)}" for kind, meaning in KINDS.items())
        yield Details(_("The kinds of keys"), (Listing(kinds),))
        yield heads
        yield from _shares(found)


def _shares(found: Found) -> Iterator[Section]:
    """The share of each kind in each head, shaded."""
    from vitral.report.grid import value_grid  # matplotlib is slow to import, and the tables need none
    from vitral.report.style import svg_bytes

    uniform = found["kinds"]["uniform"]
    rows = {_("uniform"): uniform}
    for layer, heads in enumerate(found["kinds"]["layers"]):
        rows |= {_("head {place}", place=f"{layer}.{head}"): seen["share"] for head, seen in enumerate(heads)}
    if len(rows) > MOST_GRID_ROWS:
        return
    shares = [[share[kind] for kind in uniform] for share in rows.values()]
    drawn = value_grid(shares, list(rows), [_(kind) for kind in uniform], _("weight"))
    caption = _(
        "Share of the weight on each kind of key; the first row is a head with equal weights on all visible keys."
    )
    yield Figure(svg_bytes(drawn).decode(), caption, _("The numbers of this grid are in the JSON, under kinds."))


def _attention(found: Found) -> Iterator[Section]:
    from vitral.report.maps import attention_maps
    from vitral.report.style import svg_bytes

    labels = [token["label"] for token in found["tokens"]]
    shown = [layer for layer in found["attention"] if not _has_gap(layer["heads"])]
    if not shown:
        return
    yield Heading(_("Attention maps"))
    yield Paragraph(_(MAPS))
    for layer in shown:
        block = layer["layer"]
        drawn = attention_maps(layer["heads"], labels, title=_("Block {block}", block=block))
        alt = _(
            "Attention weights of the {heads} heads of block {block}, as heat maps.",
            heads=len(layer["heads"]),
            block=block,
        )
        yield Figure(svg_bytes(drawn).decode(), _("Attention weights of block {block}.", block=block), alt)


def _has_gap(values: Any) -> bool:
    return any(map(_has_gap, values)) if isinstance(values, list) else values is None


def _lens(found: Found) -> Iterator[Section]:
    lens = found["lens"]
    points, targets = lens["points"], lens["targets"]
    tokens, is_masked = token_names(found), found["objective"] != "next-token"
    cells = [
        (tokens[place], *(best_token(point["positions"][place], target) for point in points), _label(target))
        for place, target in enumerate(targets)
    ]
    workings: list[tuple[Formula | None, ...]] = [
        (*(_working(point, place, tokens[place], target, is_masked) for point in points), None)
        for place, target in enumerate(targets)
    ]
    heat: list[tuple[float, ...]] = [
        (*(point["positions"][place]["top"][0]["probability"] or 0.0 for point in points), 0.0)
        for place in range(len(targets))
    ]
    columns = (
        _("position"),
        *(point_label(point["point"], mixer(found)) for point in points),
        _("true masked") if is_masked else _("true next"),
    )
    chosen = (max((place for place, target in enumerate(targets) if target), default=0), len(points) - 1)
    if any(targets):
        cells.append((_("loss (nats per token)"), *(_fixed(point["loss"]) for point in points), ""))
        workings.append((None,) * (len(points) + 1))
        heat.append((0.0,) * (len(points) + 1))
    yield Heading(_("Logit lens"))
    yield Paragraph(_(LENS))
    yield CellTable(_("Most probable token"), columns, tuple(cells), tuple(workings), chosen, tuple(heat))


def _label(target: dict[str, Any] | None) -> str:
    return NONE if target is None else target["label"]


def _working(point: dict[str, Any], place: int, token: str, target: dict[str, Any] | None, is_masked: bool) -> Formula:
    """The most probable tokens of one cell with their probabilities, and how the true one fares."""
    position = point["positions"][place]
    likely = " · ".join(f"{each['label']} {_share(each['probability'])}" for each in position["top"])
    truth = ""
    if target is not None:
        sentence = (
            N_("True masked token {token}: probability {probability}, rank {rank}, {loss} nats.")
            if is_masked
            else N_("True next token {token}: probability {probability}, rank {rank}, {loss} nats.")
        )
        truth = _(
            sentence,
            token=target["label"],
            probability=_share(position["probability"]),
            rank=position["rank"],
            loss=_fixed(position["loss"]),
        )
    lines = [_("{point}, position {token}: {tokens}", point=point["point"], token=token, tokens=likely), truth]
    written = Markup("").join(Markup("<p>{}</p>").format(escape(visible(line))) for line in lines if line)
    return Formula(str(written), " ".join(lines).strip())


def _share(probability: float | None) -> str:
    return NONE if probability is None else number(probability, ".3g")


def _norms(found: Found) -> Iterator[Section]:
    from vitral.report.lines import Axis, Line, line_plot
    from vitral.report.style import svg_bytes

    stream, added = found["norms"]["stream"], found["norms"]["added"]
    yield Heading(_("Residual norms"))
    yield Paragraph(_(NORMS))
    places = {point["point"]: place for place, point in enumerate(stream[:-1])}
    lines = [Line(_("stream"), list(places.values()), [point["mean"] for point in stream[:-1]])]
    for name, output, after in (
        (_("attention"), "attn.out", "resid_mid"),
        (_("recurrence"), "recurrence.out", "resid_mid"),
        (_("feed-forward"), "mlp.out", "resid_post"),
    ):
        of = [point for point in added if point["point"].endswith(output)]
        x = [places[point["point"].replace(output, after)] for point in of]
        lines += [Line(name, x, [point["mean"] for point in of])] if of else []
    if any(value is not None for line in lines for value in line.y):
        axis = Axis(_("half-layers done (0: embedding)"), ticks=_ticks(len(places)))
        drawn = line_plot(lines, axis, Axis(_("mean norm")), title=_("Norm of the residual stream by depth"))
        first, last = _fixed(stream[0]["mean"], 2), _fixed(stream[-2]["mean"], 2)
        alt = _(
            "The norm of the stream goes from {first} after the embedding to {last} after the last sublayer.",
            first=first,
            last=last,
        )
        yield Figure(svg_bytes(drawn).decode(), alt, alt)
    yield norm_table(found)
    every = [*stream, *added]
    rows = [
        (token, *(_fixed(point["positions"][place], 2) for point in every))
        for place, token in enumerate(token_names(found))
    ]
    columns = (_("position"), *(point["point"] for point in every))
    yield Details(_("Norms at every position"), (Table(_("Norm by position"), columns, tuple(rows)),))


def _ticks(count: int) -> Sequence[float]:
    """About a dozen whole numbers from 0 to count - 1.

    >>> _ticks(4), _ticks(25)
    ([0, 1, 2, 3], [0, 3, 6, 9, 12, 15, 18, 21, 24])
    """
    return list(range(0, count, 1 + count // 12))
