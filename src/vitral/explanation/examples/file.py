"""Reading worked examples from TOML files. The format is described in docs/examples.md."""

from pathlib import Path

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.documents import read_document
from vitral.explanation.examples.claims import AuthorClaims, choice
from vitral.explanation.examples.document import Document, TomlDocument
from vitral.explanation.examples.example import Example
from vitral.explanation.examples.faults import Fault, at
from vitral.explanation.examples.free_steps import StepSolver
from vitral.explanation.examples.numerals import DEFAULT, most_decimals
from vitral.explanation.examples.parameters import parameter_sheet
from vitral.explanation.examples.reader import Reader, Values
from vitral.explanation.examples.schema import mask_of
from vitral.explanation.expressions.evaluation import MOST_ELEMENTS
from vitral.explanation.recipe import Architecture, SheetQuantity, follow, recipe
from vitral.explanation.sheet import Sheet


def load_example(path: Path) -> Example:
    """Read a worked example from a file.

    Args:
        path: a file in any format of `vitral.explanation.documents`.

    Raises:
        UsageError: the file cannot be read, or contains an error; the message names the line or the cell.
    """
    return read_example(read_document(path), path)


def parse_example(text: str, path: Path | None = None) -> Example:
    """Read a worked example from its text; see `load_example`."""
    return read_example(TomlDocument(str(path or "example"), text), path)


def read_example(document: Document, path: Path | None = None) -> Example:
    """Read a worked example from a document of any format; see `load_example`."""
    try:
        reader = Reader(document)
        head, lines = reader.head, dict[str, SheetQuantity]()
        with reader.located():
            if head.preset is not None or head.model is not None or head.shapes is not None:
                sheet = parameter_sheet(head)
            else:
                sheet, lines = _computation(reader)
            entries = ((("claimed", label), value) for label, value in head.claimed.items())
            claims = AuthorClaims(reader, sheet, lines).read(entries)
    except RecursionError:
        raise UsageError("{where}: not a worked example: brackets nested too deep", where=document.name) from None
    order = [quantity.name for quantity in sheet.quantities]
    claims.sort(key=lambda claim: order.index(claim.name) if claim.name in order else -1)
    decimals = head.decimals
    if decimals is None:
        decimals = most_decimals(document.typed(path) for claim in claims for path in claim.paths.values()) or DEFAULT
    return Example(
        path,
        document,
        head.title or _("Worked example"),
        head.source,
        head.note,
        decimals,
        sheet,
        tuple(claims),
        states_decimals=head.decimals is not None,
    )


def _computation(reader: Reader) -> tuple[Sheet, dict[str, SheetQuantity]]:
    """Everything but a parameter table: the sheet and the recipe's lines by name."""
    head = reader.head
    values = reader.all_given()
    architecture = _architecture(reader, values)
    if architecture.sinusoidal and "token_embedding" not in values and not architecture.rows:
        raise Fault(
            "position_embedding: give token_embedding too; it determines the size", ("given", "position_embedding")
        )
    _refuse_large(reader)
    quantities = _followed(reader, architecture, values)
    lines = {line.name: line for line in recipe(architecture, values)}
    for key in head.claimed:
        quantities += choice(reader, key, values, lines)
    sheet = Sheet(
        quantities,
        values,
        tuple(head.tokens),
        tuple(head.vocabulary),
        num_heads=architecture.num_heads,
        sources=tuple(head.memory_tokens),
        conventions=reader.conventions,
        architecture=architecture,
    )
    return sheet, lines


def _refuse_large(reader: Reader) -> None:
    """Refuse a computation with a quantity of too many numbers before it is computed."""
    size = {axis: known for axis, (known, _) in reader.sizes.items()}
    rows, heads = size.get("time", 1), size.get("heads", 1)
    widest = max((known for axis, known in size.items() if axis != "heads"), default=1)
    if rows * heads * max(widest, size.get("source", rows)) > MOST_ELEMENTS:
        raise Fault(
            "a quantity has more than {most:,} numbers; a worked example is smaller", ("given",), most=MOST_ELEMENTS
        )


def _followed(reader: Reader, architecture: Architecture, values: Values) -> tuple[SheetQuantity, ...]:
    """Everything that the recipe and the steps compute."""
    solver = StepSolver(reader, values, architecture.num_heads)

    def recipe_again() -> tuple[SheetQuantity, ...]:
        try:
            return follow(recipe(architecture, values, solver.steps), values)
        except UsageError as error:
            key = str(error).partition(":")[0]
            raise Fault(str(error), (key,) if key in reader.head.model_fields_set else ("given", key)) from None

    return solver.quantities(recipe_again)


def _architecture(reader: Reader, values: Values) -> Architecture:
    head = reader.head
    if head.tied and "embedding" not in values:
        raise Fault("tied: the head is the embedding, but embedding is missing under [given]", ("tied",))
    with at("mask"):
        mask = None if head.mask is None else mask_of(head.mask, turned=reader.conventions.columns)
    rows = tuple(reader.word(token, "tokens") for token in head.tokens) if "embedding" in values else ()
    return Architecture.of(
        head,
        stream=reader.stream,
        norm=head.block,
        mask=mask,
        num_heads=reader.sizes.get("heads", (1, ""))[0],
        final_norm=head.final_norm or "final_norm_gain" in values,
        rows=rows,
        sinusoidal=reader.sinusoidal,
        position_halves=head.positions == "halves",
        memory=reader.has_memory,
    )
