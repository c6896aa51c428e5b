"""What `vitral inspect` found, as tables and as one self-contained page; everything from the plain data alone."""

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup, escape

from vitral.core.checked import checked
from vitral.figures.html import page
from vitral.figures.sections import CellTable, Details, Figure, Formula, Heading, Listing, Paragraph, Section, Table
from vitral.figures.text import visible
from vitral.inspection import KINDS, NAMED_FROM

Found = dict[str, Any]
"""What `vitral.inspection.inspect_text` returns, with `run` and `step`."""
Effects = dict[str, dict[str, float | None]]

MINUS = "−"
NONE = "–"
"""A cell without a number."""
RIGHT = "✓"
MOST_GRID_ROWS = 64
"""More heads are not drawn as one grid."""
WAYS = ("zero", "mean")
"""What the output of a part is replaced by."""

WORTH = (
    "The increase of the loss in nats per token when the output of a part is replaced at every position by zeros, or "
    "by its mean over all positions. Positive: the model is worse without it. Parts work together, so the increases "
    "do not add up."
)
HEADS = (
    "A head is named after the kind of key on which it has most weight beyond uniform attention, or “broad” where "
    f"that is less than {NAMED_FROM:.2f} more. Shares are means over the queries that see enough keys."
)
MAPS = "A row is a query and sums to 1; a column is a key. Cells without weight are blank."
LENS = (
    "The stream after the embedding and after every sublayer, read as if it were the last: final norm, then head. "
    "Each cell has the most probable token, shaded by its probability; a tick marks the true one. Choose a cell for "
    "the probabilities. The last point is the model's own prediction."
)
NORMS = (
    "Euclidean norm of the stream after every sublayer, and of what each sublayer adds to it; means over the positions."
)


@checked(first=True)
def inspection_page(found: Found) -> str:
    """The whole page: ablations, kinds of heads, attention maps, logit lens, residual norms."""
    sections: list[Section] = [Listing(tuple(found["notes"]))] if found["notes"] else []
    sections += [*_worth(found), *_attention(found), *_lens(found), *_norms(found)]
    title = f"Inside {found['run'].rstrip('/').rpartition('/')[2]}"
    return page(title, sections, lead=summary(found), footer="Made by Vitral.")


def summary(found: Found) -> str:
    """The text, the run, and the loss, in two or three sentences."""
    count, measured = len(found["tokens"]), found["measured_on"]
    parts = [f"{found['text']!r} ({count} token{'s' * (count != 1)}), run {found['run']}, step {found['step']:,}."]
    final = found["lens"]["points"][-1]["loss"]
    if final is not None:
        parts.append(f"Loss on the text: {final:.3f} nats per token.")
    if measured["what"] == "windows":
        parts.append(
            f"Ablations and kinds of heads are measured on {measured['rows']} windows of {measured['length']} tokens "
            f"of the test split (loss {_fixed((found['ablation'] or {}).get('loss'))})."
        )
    return " ".join(parts)


def sublayer_table(found: Found) -> Table | None:
    """What each sublayer and each block is worth, a row for each block; None where nothing was ablated."""
    blocks = (found["ablation"] or {}).get("blocks")
    if not blocks:
        return None
    there = [key for key in ("attention", "feed_forward") if blocks[0][key] is not None]
    shown = [*there, "block"] if len(there) == 2 else there
    names = {"attention": "attention", "feed_forward": "feed-forward", "block": "both"}
    columns = ("block", *(f"{names[key]}, {way}" for key in shown for way in WAYS))
    rows = [(str(block["layer"]), *(cell for key in shown for cell in _effects(block[key]))) for block in blocks]
    return Table("Loss increase without a sublayer, or both (nats per token)", columns, tuple(rows)) if shown else None


def head_table(found: Found) -> Table | None:
    """Kind and worth of every head; None for a model without attention."""
    kinds, blocks = found["kinds"], (found["ablation"] or {}).get("blocks")
    rows = []
    for layer, heads in enumerate(kinds["layers"]):
        for head, seen in enumerate(heads):
            own, even = seen["share"].get(seen["kind"]), kinds["uniform"].get(seen["kind"])
            worth = _effects(blocks[layer]["heads"][head]) if blocks else (NONE, NONE)
            weights = (_fixed(own, 2), _fixed(even, 2), _fixed(seen["distance"], 1))
            rows.append((f"{layer}.{head}", seen["kind"], *weights, *worth))
    columns = ("block.head", "kind", "weight on it", "if uniform", "distance", *WAYS)
    caption = "Heads: kind of key attended to, and loss increase without the head (nats per token)"
    return Table(caption, columns, tuple(rows), prose=(1,)) if rows else None


def norm_table(found: Found) -> Table:
    """Mean norms of the stream, and of what was added just before."""
    added = {point["point"]: point["mean"] for point in found["norms"]["added"]}
    rows = []
    for point in found["norms"]["stream"]:
        before = point["point"].replace("resid_mid", "attn.out").replace("resid_post", "mlp.out")
        rows.append((point["point"], _fixed(point["mean"]), _fixed(added.get(before))))
    return Table("Norms, mean over the positions", ("point", "stream", "added by the sublayer"), tuple(rows))


def point_label(point: str) -> str:
    """A point of the stream in few characters.

    >>> [point_label(point) for point in ("embed", "blocks.3.resid_mid", "blocks.3.resid_post")]
    ['embed', '3 attn', '3 mlp']
    """
    if not point.startswith("blocks."):
        return point
    _, layer, name = point.split(".")
    return f"{layer} {'attn' if name == 'resid_mid' else 'mlp'}"


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
    written = f"{increase:+.3f}".replace("-", MINUS)
    return written if error is None else f"{written}\u00a0±\u00a0{error:.3f}"


def _fixed(value: float | None, digits: int = 3) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def _worth(found: Found) -> Iterator[Section]:
    sublayers, heads = sublayer_table(found), head_table(found)
    errors = " After ±: the standard error over the windows." if found["measured_on"]["what"] == "windows" else ""
    if sublayers is not None:
        yield Heading("What each part is worth")
        yield Paragraph(WORTH + errors)
        yield sublayers
    if heads is not None:
        yield Heading("Heads")
        yield Paragraph(HEADS)
        yield Details("The kinds of keys", (Listing(tuple(f"{kind}: {meaning}" for kind, meaning in KINDS.items())),))
        yield heads
        yield from _shares(found)


def _shares(found: Found) -> Iterator[Section]:
    """The share of each kind in each head, shaded."""
    from vitral.figures.grid import value_grid  # matplotlib is slow to import, and the tables need none
    from vitral.figures.style import svg_bytes

    uniform = found["kinds"]["uniform"]
    rows = {"uniform": uniform}
    for layer, heads in enumerate(found["kinds"]["layers"]):
        rows |= {f"head {layer}.{head}": seen["share"] for head, seen in enumerate(heads)}
    if len(rows) > MOST_GRID_ROWS:
        return
    kinds = list(uniform)
    drawn = value_grid([[share[kind] for kind in kinds] for share in rows.values()], list(rows), kinds, "weight")
    caption = "Share of the weight on each kind of key; the first row is a head with equal weights on all visible keys."
    yield Figure(svg_bytes(drawn).decode(), caption, "The numbers of this grid are in the JSON, under kinds.")


def _attention(found: Found) -> Iterator[Section]:
    from vitral.figures.maps import attention_maps
    from vitral.figures.style import svg_bytes

    labels = [token["label"] for token in found["tokens"]]
    shown = [layer for layer in found["attention"] if not _has_gap(layer["heads"])]
    if not shown:
        return
    yield Heading("Attention maps")
    yield Paragraph(MAPS)
    for layer in shown:
        drawn = attention_maps(layer["heads"], labels, title=f"Block {layer['layer']}")
        alt = f"Attention weights of the {len(layer['heads'])} heads of block {layer['layer']}, as heat maps."
        yield Figure(svg_bytes(drawn).decode(), f"Attention weights of block {layer['layer']}.", alt)


def _has_gap(values: Any) -> bool:
    return any(map(_has_gap, values)) if isinstance(values, list) else values is None


def _lens(found: Found) -> Iterator[Section]:
    lens = found["lens"]
    points, targets = lens["points"], lens["targets"]
    tokens, what = token_names(found), "next" if found["objective"] == "next-token" else "masked"
    cells = [
        (tokens[place], *(best_token(point["positions"][place], target) for point in points), _label(target))
        for place, target in enumerate(targets)
    ]
    workings: list[tuple[Formula | None, ...]] = [
        (*(_working(point, place, tokens[place], target, what) for point in points), None)
        for place, target in enumerate(targets)
    ]
    heat: list[tuple[float, ...]] = [
        (*(point["positions"][place]["top"][0]["probability"] or 0.0 for point in points), 0.0)
        for place in range(len(targets))
    ]
    columns = ("position", *(point_label(point["point"]) for point in points), f"true {what}")
    chosen = (max((place for place, target in enumerate(targets) if target), default=0), len(points) - 1)
    if any(targets):
        cells.append(("loss (nats per token)", *(_fixed(point["loss"]) for point in points), ""))
        workings.append((None,) * (len(points) + 1))
        heat.append((0.0,) * (len(points) + 1))
    yield Heading("Logit lens")
    yield Paragraph(LENS)
    yield CellTable("Most probable token", columns, tuple(cells), tuple(workings), chosen, tuple(heat))


def _label(target: dict[str, Any] | None) -> str:
    return NONE if target is None else target["label"]


def _working(point: dict[str, Any], place: int, token: str, target: dict[str, Any] | None, what: str) -> Formula:
    """The most probable tokens of one cell with their probabilities, and how the true one fares."""
    position = point["positions"][place]
    likely = " · ".join(f"{each['label']} {_share(each['probability'])}" for each in position["top"])
    truth = ""
    if target is not None:
        how = f"probability {_share(position['probability'])}, rank {position['rank']}, {_fixed(position['loss'])} nats"
        truth = f"True {what} token {target['label']}: {how}."
    lines = [f"{point['point']}, position {token}: {likely}", truth]
    written = Markup("").join(Markup("<p>{}</p>").format(escape(visible(line))) for line in lines if line)
    return Formula(str(written), " ".join(lines).strip())


def _share(probability: float | None) -> str:
    return NONE if probability is None else f"{probability:.3g}"


def _norms(found: Found) -> Iterator[Section]:
    from vitral.figures.lines import Axis, Line, line_plot
    from vitral.figures.style import svg_bytes

    stream, added = found["norms"]["stream"], found["norms"]["added"]
    yield Heading("Residual norms")
    yield Paragraph(NORMS)
    places = {point["point"]: place for place, point in enumerate(stream[:-1])}
    lines = [Line("stream", list(places.values()), [point["mean"] for point in stream[:-1]])]
    for name, output, after in (("attention", "attn.out", "resid_mid"), ("feed-forward", "mlp.out", "resid_post")):
        of = [point for point in added if point["point"].endswith(output)]
        x = [places[point["point"].replace(output, after)] for point in of]
        lines += [Line(name, x, [point["mean"] for point in of])] if of else []
    if any(value is not None for line in lines for value in line.y):
        axis = Axis("half-layers done (0: embedding)", ticks=_ticks(len(places)))
        drawn = line_plot(lines, axis, Axis("mean norm"), title="Norm of the residual stream by depth")
        first, last = _fixed(stream[0]["mean"], 2), _fixed(stream[-2]["mean"], 2)
        alt = f"The norm of the stream goes from {first} after the embedding to {last} after the last sublayer."
        yield Figure(svg_bytes(drawn).decode(), alt, alt)
    yield norm_table(found)
    every = [*stream, *added]
    rows = [
        (token, *(_fixed(point["positions"][place], 2) for point in every))
        for place, token in enumerate(token_names(found))
    ]
    columns = ("position", *(point["point"] for point in every))
    yield Details("Norms at every position", (Table("Norm by position", columns, tuple(rows)),))


def _ticks(count: int) -> Sequence[float]:
    """About a dozen whole numbers from 0 to count - 1.

    >>> _ticks(4), _ticks(25)
    ([0, 1, 2, 3], [0, 3, 6, 9, 12, 15, 18, 21, 24])
    """
    return list(range(0, count, 1 + count // 12))
