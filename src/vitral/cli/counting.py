"""How `vitral count` looks on a terminal."""

from vitral.api.counting import Count, cost_rows
from vitral.cli.screen import console, table


def print_count(counted: Count) -> None:
    """Every tensor with its formula, the total, operations and bytes."""
    rows = [
        (row.name, row.part, "×".join(str(size) for size in row.shape), row.formula, f"{row.count:,}")
        for row in counted.rows
    ]
    total = f"{counted.cost.parameters:,}"
    title = f"Parameters of {counted.name} with {counted.vocab_size} tokens: {total}"
    screen = console()
    columns = ("name", "part", "shape", "formula", "parameters")
    screen.print(table(title, columns, [*rows, ("total", "", "", "", total)], words=4))
    screen.print(table("Operations and bytes (float32)", ("", "", "counted as"), cost_rows(counted), words=3))
