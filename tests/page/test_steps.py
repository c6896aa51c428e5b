"""Generation in a page: token by token with what is kept of earlier ones, it is the whole computation."""

from typing import Any

import pytest
import torch
from browser import in_node, needs_web, plain
from pages import Carried, of_variants, weights_of
from torch import Tensor
from variants import BASE, made

from vitral.decoding import Reader
from vitral.interop.model_graphs import step_graph
from vitral.model import Transformer
from vitral.page.content import PageContent

WITHOUT = ("bidirectional", "no attention", "neither", "no layer")
CLOSE = 1e-5
"""Of the largest logit."""
PROMPT, TIME = 2, BASE["context_length"] + 9
"""Past the context the window restarts."""

STEP_BY_STEP = """
const constants = tensors(given.weights);
for (const each of Object.values(constants)) each.data = Float32Array.from(each.data);
const whole = new vitral.Program(given.whole, constants);
const steps = new vitral.Steps(whole, given.step, constants, given.context);
let count = 0;
const window = steps.window.bind(steps);
steps.window = (...all) => (count++, window(...all));
const logits = [];
for (let time = given.prompt; time <= given.ids.length; time++)
  logits.push(Array.from(steps.read(given.ids.slice(0, time), given.prompt, given.edits).logits));
return { logits, count };
"""


def tokens(time: int, vocabulary: int) -> list[int]:
    return [(place * 7 + 3 + place // 5) % vocabulary for place in range(time)]


def step_by_step(
    of: tuple[Transformer, PageContent], ids: list[int], prompt: int, edits: list[dict[str, Any]]
) -> tuple[Tensor, int]:
    """The logits after each token from the prompt's last on, and how often a whole sentence was computed."""
    model, content = of
    given = {
        "whole": content.graphs["model"],
        "step": content.graphs["step"],
        "weights": {name: plain(value) for name, value in weights_of(content).items()},
        "context": model.config.context_length,
        "ids": ids,
        "prompt": prompt,
        "edits": edits,
    }
    (made,) = in_node(STEP_BY_STEP, [given], "tensors", "page/compute/cached", "page/compute/program")
    return torch.tensor(made["logits"], dtype=torch.float64), made["count"]


def by_reader(model: Transformer, ids: list[int], prompt: int) -> Tensor:
    """The same of the reader that generation has, without a cache."""
    reader = Reader(model, torch.tensor([ids[:prompt]]), use_cache=False)
    rows = [reader.logits()]
    for token in ids[prompt:]:
        reader.append(torch.tensor([token]))
        rows.append(reader.logits())
    return torch.cat(rows).double()


def require_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=CLOSE * float(expected.abs().max()))


@needs_web
@pytest.mark.parametrize("variant", of_variants("lstm", "grouped", "prefix"))
def test_step_by_step_is_the_whole_computation(variant: str, carried: Carried) -> None:
    model, content = carried(variant)
    ids = tokens(TIME, model.vocab_size)
    found, wholes = step_by_step((model, content), ids, PROMPT, [])
    require_close(found, by_reader(model, ids, PROMPT))
    cached = variant not in WITHOUT
    assert (content.graphs["step"] is not None) == cached
    if cached and "prefix" not in variant and model.config.recurrence is None:
        assert wholes == 3  # the prompt, and two restarts


AGAIN = """
const constants = tensors(given.weights);
for (const each of Object.values(constants)) each.data = Float32Array.from(each.data);
const used = new vitral.Program(given.whole, constants);
const sentence = (ids) => ({ tokens: { shape: [1, ids.length], data: Float32Array.from(ids) } });
const read = (program, ids, names, edits) => program.run(sentence(ids), names, edits);
const twice = { [given.edited]: (value) => ({ ...value, data: value.data.map((each) => 2 * each) }) };
let worst = 0;
for (const ids of given.sentences)
  for (const edits of [{}, twice, {}]) {
    const found = read(used, ids, given.names, edits);
    const expected = read(new vitral.Program(given.whole, constants), ids, given.names, edits);
    for (const name of given.names) {
      if (String(found[name].shape) !== String(expected[name].shape)) return name;
      expected[name].data.forEach((each, at) => {
        const other = found[name].data[at];
        if (!Object.is(each, other)) worst = Math.max(worst, Math.abs(each - other) || 1);
      });
    }
  }
return worst;
"""


@pytest.mark.merge
@needs_web
@pytest.mark.parametrize("variant", ["grouped", "lstm"])
def test_what_is_kept_of_other_sentences_changes_no_number(variant: str, carried: Carried) -> None:
    model, content = carried(variant)
    ids = tokens(BASE["context_length"], model.vocab_size)
    case = {
        "whole": content.graphs["model"],
        "weights": {name: plain(value) for name, value in weights_of(content).items()},
        "names": list(model.activation_names),
        "edited": "blocks.0.mlp.out" if "blocks.0.mlp.out" in model.activation_names else "embed",
        "sentences": [ids[:1], ids[:3], ids[:4], ids, [*ids[:4], ids[0], *ids[5:]], ids[1:], ids[:2]],
    }
    (worst,) = in_node(AGAIN, [case], "tensors", "page/compute/program")
    assert worst < 1e-5


@pytest.mark.parametrize("context", [1, 2])
def test_a_context_too_short_for_a_cache_has_no_step(context: int) -> None:
    assert step_graph(made({"context_length": context, "num_layers": 1})) is None
