"""Any cell opens to the arithmetic that made it, down to parameters and tokens; every equation shown is true."""

from typing import Any

import pytest
import torch
from browser import needs_node, plain
from equations import Names, check_equation
from pages import Carried, in_page, of_variants, weights_of
from variants import TEXT, TOKENIZER, VARIANTS

from vitral.inspection.lens import lens_logits
from vitral.model import Transformer
from vitral.page.content import PageContent

pytestmark = needs_node
IDS = list(map(int, TOKENIZER.encode(TEXT)))
LENGTHS = (1, 2, 8)
SOME = of_variants("pre", "adaptive", "rotary of interleaved pairs", "lstm")
NEAR = 1e-5
"""Relative to the sum of the absolute terms."""

BEGIN = """
const { Sheet, digitsOf, equation, inner, leads, leaves, openable, textOf, worth } = page;
const number = (each) => (each === "-inf" ? -Infinity : each);
const read = ({ shape, data }) => ({ shape, data: Float32Array.from(data, number) });
const tensors = (all) => Object.fromEntries(Object.entries(all).map(([name, each]) => [name, read(each)]));
const values = tensors(given.values);
const anatomy = { graph: given.graph, lens: given.lens, constants: tensors(given.constants) };
const sheet = new Sheet(anatomy, given.ids, values, []);
let seed = 1;
const draw = (count) => (seed = (seed * 48271) % 2147483647) % count;
const split = ([index, rest], n) => [[rest % n, ...index], Math.floor(rest / n)];
const indexOf = (shape, place) => shape.reduceRight(split, [[], place])[0];
const size = (expression) => {
  const inside = inner(expression).map(size);
  const total = (list) => list.reduce((all, each) => all + each, 0);
  if (expression.kind === "sum" || expression.kind === "difference") return total(inside);
  if (expression.kind === "product") return inside.reduce((all, each) => all * each, 1);
  if (expression.kind === "fraction") return inside[0] / Math.abs(worth(expression.below));
  return Math.abs(worth(expression));
};
const cells = (count) => Object.entries(values).flatMap(([name, value]) =>
  Array.from({ length: count }, () => ({ name, index: indexOf(value.shape, draw(value.data.length)), path: [] })));
"""


def case(of: tuple[Transformer, PageContent], ids: list[int], **more: Any) -> dict[str, Any]:
    model, content = of
    values = model.trace(torch.tensor([ids]))
    for name in (*content.about["stream"], *content.about["contributions"]):
        values[f"lens.{name}"] = lens_logits(model, values[name])
    told = {name: plain(each) for name, each in values.items()}
    kept = {name: plain(each) for name, each in weights_of(content).items()}
    graphs = {"graph": content.graphs["model"], "lens": content.graphs["lens"]}
    return {**graphs, "ids": ids, "values": told, "constants": kept, **more}


@pytest.mark.parametrize("variant", SOME)
def test_the_arithmetic_of_a_cell_is_the_cell(variant: str, carried: Carried) -> None:
    body = (
        BEGIN
        + """
return cells(12).map((spot) => {
  const { value, expression } = sheet.open(spot);
  if (!expression) return [spot.name, value === -Infinity ? "-inf" : value, null, 0];
  const told = (each) => (each === -Infinity ? "-inf" : each);
  return [spot.name, told(value), told(worth(expression)), size(expression)];
});"""
    )
    for found in in_page(body, [case(carried(variant), IDS[-length:]) for length in LENGTHS]):
        for name, value, computed, around in found:
            if computed is None:
                assert "recurrence" in VARIANTS[variant], name
                continue
            if value == "-inf":
                assert computed == value
                continue
            assert float(computed) == pytest.approx(float(value), abs=NEAR * max(around, 0.05)), name


@pytest.mark.parametrize("variant", SOME)
def test_every_chain_of_openings_ends(variant: str, carried: Carried) -> None:
    body = (
        BEGIN
        + """
const ends = new Set();
let deepest = 0;
for (const start of cells(3)) {
  let spot = start;
  for (let depth = 0; ; depth++) {
    if (depth > 1000) throw new Error(`no end: ${JSON.stringify(start)}`);
    const opened = sheet.open(spot);
    if (!opened) throw new Error(JSON.stringify(spot));
    deepest = Math.max(deepest, depth);
    const ways = opened.expression ? openable(opened.expression) : [];
    if (!ways.length) {
      const bare = opened.expression ? opened.expression.kind : opened.is;
      ends.add(bare === "number" ? "number" : bare === "parameter" ? bare : `${bare} ${spot.name}`);
      break;
    }
    const way = ways[draw(ways.length)];
    if (worth(way.expression) !== sheet.open(leads(spot, way)).value) throw new Error(JSON.stringify([spot, way]));
    spot = leads(spot, way);
  }
}
return [[...ends].sort(), deepest, given.graph.nodes.length];"""
    )
    for ends, deepest, nodes in in_page(body, [case(carried(variant), IDS)]):
        opaque = [end for end in ends if end not in ("number", "parameter")]
        assert all(end.endswith("recurrence.out") for end in opaque), ends
        assert deepest <= nodes
        assert "parameter" in ends


@pytest.mark.parametrize("variant", SOME)
def test_the_equations_are_true(variant: str, carried: Carried) -> None:
    body = (
        BEGIN
        + """
const english = ["… (1 more term: {sum})", "… ({n} more terms: {sum})"];
const more = given.comma ? ["… (mais 1 termo: {sum})", "… (mais {n} termos: {sum})"] : english;
const told = [];
for (let spot of cells(6))
  for (let depth = 0; depth < 3; depth++) {
    const opened = sheet.open(spot);
    if (!opened.expression || !Number.isFinite(opened.value)) break;
    const digits = digitsOf(opened.value, ...leaves(opened.expression));
    const manner = { digits, comma: given.comma, first: 0, more: "" };
    const pieces = equation(opened.expression, manner, more);
    const total = textOf(equation({ kind: "number", value: opened.value }, manner, more));
    told.push([`${spot.name} ${spot.path}`, digits, textOf(pieces), total]);
    const ways = openable(opened.expression);
    if (!ways.length) break;
    spot = leads(spot, ways[draw(ways.length)]);
  }
return told;"""
    )
    commas = (False, True)
    for comma, found in zip(
        commas, in_page(body, [case(carried(variant), IDS, comma=each) for each in commas]), strict=True
    ):
        assert len(found) > 20
        for where, digits, sides, total in found:
            try:
                check_equation([total, sides], Names({}), digits, comma=comma)
            except AssertionError as error:
                raise AssertionError(where) from error


@pytest.mark.parametrize("variant", SOME)
def test_numbers_that_are_fetched_as_they_are_needed_give_the_same(variant: str, carried: Carried) -> None:
    body = (
        BEGIN
        + """
const wanted = [...given.graph.constants, ...given.lens.constants];
const remotes = Object.fromEntries(wanted.map(({ name, shape }) => [name, new page.Remote(shape)]));
const parts = { graph: given.graph, lens: given.lens, constants: remotes };
const here_of = (name) => {
  const [own, at] = name.split("@");
  const { shape, data } = values[own];
  if (at === undefined) return values[own];
  return { shape: [1, 1, shape[2]], data: data.slice(at * shape[2], (Number(at) + 1) * shape[2]) };
};
let [here, lean, most, all] = [{}, new Sheet(parts, given.ids, {}, []), 0, 0];
const fetched = (spot) => {
  for (let rounds = 0; ; rounds++) {
    const opened = lean.open(spot);
    const needed = lean.needed();
    most = Math.max(most, rounds);
    if (!needed) return opened;
    if (rounds > 20) throw new Error(JSON.stringify([spot, needed]));
    for (const [name, places] of Object.entries(needed.constants)) {
      all += places ? 0 : 1;
      const { data } = anatomy.constants[name];
      remotes[name].learn(places, places ? places.map((place) => data[place]) : data);
    }
    if (!needed.values.length) continue;
    here = { ...here, ...Object.fromEntries(needed.values.map((name) => [name, here_of(name)])) };
    lean = new Sheet(parts, given.ids, here, []);
  }
};
const told = (each) => each && [String(each.value), each.is, each.expression && String(worth(each.expression)),
  each.expression && textOf(equation(each.expression, { digits: 6, comma: false, first: 0, more: "" }, ["", ""]))];
for (let spot of cells(2))
  for (let depth = 0; depth < 12; depth++) {
    const [whole, part] = [sheet.open(spot), fetched(spot)];
    const both = [whole, part].map((each) => JSON.stringify(told(each)));
    if (both[0] !== both[1]) throw new Error([JSON.stringify(spot), ...both].join(" "));
    const ways = whole.expression ? openable(whole.expression) : [];
    if (!ways.length) break;
    spot = leads(spot, ways[draw(ways.length)]);
  }
return [most, all, Object.keys(here).length];"""
    )
    for rounds, whole, values in in_page(body, [case(carried(variant), IDS)]):
        assert 1 <= rounds < 8
        # Gain and shift of the final norm, and which features are pairs.
        assert whole <= 3 or "recurrence" in VARIANTS[variant]
        assert values > 0
