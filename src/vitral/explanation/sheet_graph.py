"""The graph of a worked example's sheet (`vitral.core.graphs`), from what is given to every quantity."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from vitral.core.graphs import NotInGraphs, Plain, graph_of
from vitral.core.taps import SILENT, Tap
from vitral.decoding import distribution
from vitral.explanation.rows.choices import Beam
from vitral.explanation.sheet import Sheet


def sheet_graph(sheet: Sheet) -> tuple[Plain, list[str]]:
    """The graph of a sheet, from what is given to every quantity, and the names of the quantities that it lacks.

    A quantity is left out, with everything that needs it, if it decides by numbers or uses an operation that the
    interpreter lacks.
    """
    left_out: set[str] = set()
    try:
        return _graph(sheet, left_out), []
    except NotInGraphs:
        for quantity in sheet.quantities:
            alone = replace(sheet, quantities=(quantity,))
            try:
                if left_out.isdisjoint(quantity.inputs):
                    _graph(alone, set())
                    continue
            except NotInGraphs:
                pass
            left_out.add(quantity.name)
    return _graph(sheet, left_out), [quantity.name for quantity in sheet.quantities if quantity.name in left_out]


def _graph(sheet: Sheet, left_out: Collection[str]) -> Plain:
    quantities = [quantity for quantity in sheet.quantities if quantity.name not in left_out]
    made = {quantity.name for quantity in quantities}
    second = aliases(sheet)
    needed = {second.get(name, name) for quantity in quantities for name in quantity.inputs}
    inputs = {name: value for name, value in sheet.values.items() if name in needed and name not in made}

    def compute(given: Mapping[str, Tensor], tap: Tap = SILENT) -> None:
        known = dict(given)
        for quantity in quantities:
            values = {name: known[second.get(name, name)] for name in quantity.inputs}
            row = quantity.row
            made = search_in_tensors(row, values["next"]) if type(row) is Beam else quantity.make(values)
            known[quantity.name] = tap(quantity.name, made)

    return graph_of(compute, inputs)


def aliases(sheet: Sheet) -> dict[str, str]:
    """Second names of a quantity, as that of a stream which is another quantity unchanged."""
    made = {id(sheet.values[quantity.name]): quantity.name for quantity in reversed(sheet.quantities)}
    given = {name: id(value) for name, value in sheet.values.items() if name not in sheet}
    return {name: made[value] for name, value in given.items() if value in made}


def given_names(sheet: Sheet) -> list[str]:
    """Names of the given numbers that are used and shown; gains that are all 1 are neither."""
    used = {name for quantity in sheet.quantities for name in quantity.inputs}
    made = {quantity.name for quantity in sheet.quantities} | set(aliases(sheet))
    plain = {name for name, value in sheet.values.items() if name.endswith("_gain") and bool((value == 1).all())}
    return [name for name in sheet.values if name in used and name not in made and name not in plain]


def search_in_tensors(beam: Beam, table: Tensor) -> Tensor:
    """The words found by beam search, [length], or their probability, [1], of a bigram table [vocab, vocab].

    There are no decisions in Python, so that it has a graph; otherwise it is `rows.choices.Beam`.

    The hypotheses stay in the order of their words, so that of equal ones the first by index is kept.
    """
    steps = distribution(table.log()).log()
    words, scores, last = torch.zeros(1, 0).long(), steps.new_zeros(1), torch.tensor([beam.start])
    for _ in range(beam.length):
        grown = (scores[:, None] + steps[last]).flatten()
        kept = grown.sort(descending=True, stable=True).indices[: beam.num_beams].sort().values
        before, last, scores = kept // len(table), kept % len(table), grown[kept]
        words = torch.cat((words[before], last[:, None]), dim=1)
    best = scores.argmax(dim=0, keepdim=True)
    return scores[best].exp() if beam.probability else words[best][0].double()
