"""What is computed from values that change, against the same computed from the beginning after every change."""

from browser import needs_node
from page_modules import in_page

pytestmark = needs_node
GRAPHS = 400
PLAY = """
let state = given;
const draw = (below) => {
  state = (state * 1664525 + 1013904223) % 2 ** 32;
  return Math.floor(state / 65536) % below;
};
const { batch, computed, effect, signal } = page;
const signals = Array.from({ length: 1 + draw(4) }, () => signal(draw(4)));
// A value may read one other only where the first is odd, and fail.
const rules = Array.from({ length: 1 + draw(8) }, (_, at) => ({
  reads: Array.from({ length: 1 + draw(3) }, () => draw(signals.length + at)),
  below: 1 + draw(5), fails: draw(6) === 0,
}));
const made = (rule, read) => {
  const first = read(rule.reads[0]);
  if (first % 2) return first % rule.below;
  const sum = rule.reads.reduce((all, each) => all + read(each), 0);
  if (rule.fails && sum === 3) throw new Error("three");
  return sum % rule.below;
};
const values = [...signals];
let computations = 0;
for (const rule of rules) values.push(computed(() => (computations++, made(rule, (at) => values[at].value))));
const expected = (at) => (at < signals.length ? signals[at].peek() : made(rules[at - signals.length], expected));
const safely = (read) => { try { return read(); } catch { return "failed"; } };
const effects = Array.from({ length: 1 + draw(4) }, () => {
  return { reads: [draw(values.length), draw(values.length)], runs: [], ended: false };
});
for (const each of effects)
  each.end = effect(() => each.runs.push(each.reads.map((at) => safely(() => values[at].value)).join()));
const wrong = [];
for (let change = 0; change < 30; change++) {
  const before = computations;
  const runs = effects.map((each) => each.runs.length);
  batch(() => { for (let times = draw(3); times >= 0; times--) signals[draw(signals.length)].value = draw(5); });
  if (computations - before > rules.length) wrong.push("a value is computed twice");
  effects.forEach((each, at) => {
    const right = each.reads.map((place) => safely(() => expected(place))).join();
    if (each.runs.length > runs[at] + (each.ended ? 0 : 1)) wrong.push("an effect runs too often");
    if (!each.ended && each.runs.at(-1) !== right) wrong.push("an effect did not run");
  });
  const one = effects[draw(9 * effects.length)];
  if (one) [one.ended] = [true, one.end()];
}
values.forEach((each, at) => {
  if (safely(() => each.value) !== safely(() => expected(at))) wrong.push(`value ${at}`);
});
return wrong;
"""


def test_what_is_computed_from_changing_values_is_right_and_computed_once() -> None:
    assert [wrong for wrong in in_page(PLAY, range(GRAPHS)) if wrong] == []
