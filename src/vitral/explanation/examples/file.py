"""Reading worked examples from TOML files. The format is described in docs/examples.md."""

import math
from pathlib import Path
from typing import Any, BinaryIO

from vitral.attention.masks import Mask
from vitral.core.errors import UsageError, reason
from vitral.core.language import _
from vitral.explanation.architecture import Architecture
from vitral.explanation.documents import document_of
from vitral.explanation.examples.author_claims import AuthorClaims
from vitral.explanation.examples.choices import choice
from vitral.explanation.examples.document import Document, TomlDocument
from vitral.explanation.examples.example import AuthorClaim, Example
from vitral.explanation.examples.free_steps import StepSolver
from vitral.explanation.examples.given import Given, Values
from vitral.explanation.examples.numerals import DEFAULT, most_decimals
from vitral.explanation.examples.parameters import FindModel, parameter_sheet
from vitral.explanation.examples.schema import (
    MOST_DECIMALS,
    mask_of,
    turned_tables,
)
from vitral.explanation.expressions.evaluation import MOST_ELEMENTS
from vitral.explanation.recipe import RecipeLine, follow, recipe
from vitral.explanation.sheet import Sheet, SheetQuantity

MOST_BYTES = 2**20
"""A larger file is not a worked example."""


def load_example(path: Path, find_model: FindModel) -> Example:
    """Read a worked example from a file.

    Args:
        path: a file in any format of `vitral.explanation.documents`.
        find_model: returns the configuration of a preset, for parameter tables.

    Raises:
        UsageError: the file cannot be read, or contains an error; the message names the line or the cell.
    """
    return read_example(load_document(path), find_model, path)


def load_document(path: Path) -> Document:
    """The document of a file.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        if path.is_dir():
            raise UsageError("{path}: is a folder, not a worked example", path=path)
        with path.open("rb") as file:
            raw = read_limited(file, str(path))
    except OSError as error:
        raise UsageError("{path}: cannot be read ({reason})", path=path, reason=reason(error)) from None
    return document_of(raw, str(path))


def read_limited(file: BinaryIO, name: str) -> bytes:
    """The bytes of a worked example.

    Raises:
        UsageError: there are more than `MOST_BYTES`.
    """
    raw = file.read(MOST_BYTES + 1)  # a device has no size and no end
    if len(raw) > MOST_BYTES:
        raise UsageError(
            "{path}: larger than {most_bytes:,} bytes: not a worked example", path=name, most_bytes=MOST_BYTES
        )
    return raw


def parse_example(text: str, find_model: FindModel, path: Path | None = None) -> Example:
    """Read a worked example from its text; see `load_example`."""
    return read_example(TomlDocument(str(path or "example"), text), find_model, path)


def read_example(document: Document, find_model: FindModel, path: Path | None = None) -> Example:
    """Read a worked example from a document of any format; see `load_example`."""
    try:
        return _read(Given(document), find_model, path)
    except RecursionError:
        raise UsageError("{where}: not a worked example: brackets nested too deep", where=document.name) from None


def _read(given: Given, find_model: FindModel, path: Path | None) -> Example:
    head, found = given.head, given.head.given
    lines: dict[str, RecipeLine] = {}
    if any(key in found for key in ("preset", "model", "shapes")):
        architecture = Architecture()
        sheet = parameter_sheet(found, head.claimed, find_model, given.refuse)
    else:
        architecture, sheet, lines = _computation(given)
    claims = AuthorClaims(given, sheet, lines).all()
    order = [quantity.name for quantity in sheet.quantities]
    title = head.title if "title" in head.model_fields_set else _("Worked example")
    claims.sort(key=lambda claim: order.index(claim.name) if claim.name in order else -1)
    return Example(
        path,
        given.document,
        title,
        head.source,
        head.note,
        _decimals(given, claims),
        sheet,
        tuple(claims),
        architecture,
        states_decimals=head.decimals is not None,
    )


def _decimals(given: Given, claims: list[AuthorClaim]) -> int:
    """The decimals that the file states, or the most that are typed in a claim."""
    if given.head.decimals is not None:
        return given.head.decimals
    paths = (claim.path(tuple(place)) for claim in claims for place in claim.values.isfinite().nonzero().tolist())
    return min(most_decimals(map(given.document.typed, paths)) or DEFAULT, MOST_DECIMALS)


def _computation(given: Given) -> tuple[Architecture, Sheet, dict[str, RecipeLine]]:
    """Everything but a parameter table: the parts, the sheet and the recipe's lines by name."""
    head = given.head
    values = given.all_given()
    architecture = _architecture(given, values)
    if architecture.sinusoidal and "token_embedding" not in values and not architecture.rows:
        complaint = _("position_embedding: give token_embedding too; it determines the size")
        raise given.refuse(complaint, "given", "position_embedding")
    _refuse_large(given)
    quantities = _followed(given, architecture, values)
    lines = {line.name: line for line in recipe(architecture, values)}
    for key in head.claimed:
        quantities += choice(given, key, values, lines)
    tokens = tuple(head.tokens)
    if tokens and "time" in given.sizes and len(tokens) != given.sizes["time"][0]:
        size, name = given.sizes["time"]
        complaint = _("tokens: {count} names, but {name} has {size} rows", count=len(tokens), name=name, size=size)
        raise given.refuse(complaint, "tokens")
    sources = tuple(head.memory_tokens)
    if sources and len(sources) != given.sizes.get("source", (0, ""))[0]:
        complaint = _(
            "memory_tokens: {count} names, but there are {size} keys",
            count=len(sources),
            size=given.sizes.get("source", (0, ""))[0],
        )
        raise given.refuse(complaint, "memory_tokens")
    sheet = Sheet(
        quantities,
        values,
        tokens,
        tuple(head.vocabulary),
        num_heads=architecture.num_heads,
        sources=sources,
        conventions=given.conventions,
        architecture=architecture,
    )
    return architecture, sheet, lines


def _refuse_large(given: Given) -> None:
    """Refuse a computation with a quantity of too many numbers before it is computed."""
    size = {axis: known for axis, (known, _) in given.sizes.items()}
    rows, heads = size.get("time", 1), size.get("heads", 1)
    widest = max((known for axis, known in size.items() if axis != "heads"), default=1)
    if rows * heads * max(widest, size.get("source", rows)) > MOST_ELEMENTS:
        complaint = _("a quantity has more than {most:,} numbers; a worked example is smaller", most=MOST_ELEMENTS)
        raise given.refuse(complaint, "given")


def _followed(given: Given, architecture: Architecture, values: Values) -> tuple[SheetQuantity, ...]:
    """Everything that the recipe and the steps compute."""
    solver = StepSolver(given.steps, given.name, values, architecture.num_heads, given.refuse, given.conventions)

    def recipe_again() -> tuple[SheetQuantity, ...]:
        lines = (line for line in recipe(architecture, values) if line.name not in solver.names)
        try:
            return follow(lines, values)
        except UsageError as error:
            key = str(error).partition(":")[0]
            raise given.refuse(str(error), *_place_of(given, key)) from None

    return solver.quantities(recipe_again)


def _place_of(given: Given, key: str) -> tuple[str, ...]:
    """The path of a setting or of a given number."""
    return (key,) if key in given.head.model_fields_set else ("given", key)


def _architecture(given: Given, values: Values) -> Architecture:
    head = given.head
    if head.tied and "embedding" not in values:
        complaint = _("tied: the head is the embedding, but embedding is missing under [given]")
        raise given.refuse(complaint, "tied")
    rows = tuple(given.word(token, head.vocabulary, "tokens") for token in head.tokens) if "embedding" in values else ()
    d_k = head.given.get("d_k")
    if d_k is not None and (isinstance(d_k, bool) or not isinstance(d_k, int) or d_k < 1):
        complaint = _("d_k: expected a whole number of at least 1, not {value}", value=repr(d_k))
        raise given.refuse(complaint, "given", "d_k")
    return Architecture(
        stream=given.stream,
        norm=head.block,
        mask=None if head.mask is None else _mask(given, head.mask),
        scale=head.scale,
        num_heads=given.sizes.get("heads", (head.heads or 1, ""))[0],
        d_k=d_k,
        activation=head.activation,
        norm_type=head.norm_type,
        epsilon=head.epsilon,
        final_norm=head.final_norm or "final_norm_gain" in values,
        tied=head.tied,
        rows=rows,
        sinusoidal=any(
            value == "sinusoidal" and given.name(key) == "position_embedding" for key, value in head.given.items()
        ),
        position_base=head.position_base,
        position_halves=head.positions == "halves",
        first_position=head.first_position,
        softmax_base=math.e if head.softmax_base == "e" else head.softmax_base,
        memory=given.has_memory,
    )


def _mask(given: Given, value: Any) -> Mask:
    try:
        return mask_of(turned_tables(value) if given.conventions.columns else value)
    except UsageError as error:
        raise given.refuse(str(error), "mask") from None
