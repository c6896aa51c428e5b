"""The steps of a walkthrough as plain data for JSON; nothing is truncated."""

import math
from typing import Any

from vitral.explanation.formulas import latex, text
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.steps import Cell, Panel, Step


def plain_step(step: Step, digits: int, say: Phrases) -> dict[str, Any]:
    """All contents of a step; infinite numbers as "inf" and "-inf", cells counted from 0."""
    return {
        "name": step.name,
        "title": step.title,
        "formula": text(step.formula, digits, say),
        "latex": latex(step.formula, digits, say),
        "shapes": step.shapes,
        "sentence": step.sentence,
        "is_share": step.is_share,
        "panels": [_panel(panel, digits, say) for panel in step.panels],
    }


def _panel(panel: Panel, digits: int, say: Phrases) -> dict[str, Any]:
    written = [_arithmetic(panel, cell, digits, say) for cell in panel.worked]
    return {
        "label": panel.label,
        "quantity": panel.quantity,
        "head": panel.head,
        "rows": list(panel.row_labels),
        "columns": list(panel.column_labels),
        "matrix": [[_number(value) for value in row] for row in panel.matrix],
        **written[0],
        "also": written[1:],
    }


def _arithmetic(panel: Panel, cell: Cell, digits: int, say: Phrases) -> dict[str, Any]:
    arithmetic = panel.working(*cell).equation()
    return {
        "cell": list(cell),
        "arithmetic": text(arithmetic, digits, say),
        "arithmetic_latex": latex(arithmetic, digits, say),
    }


def _number(value: float) -> float | str | None:
    """A number for JSON; NaN as null."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else "inf" if value > 0 else "-inf"
