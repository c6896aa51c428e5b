"""The same JSON of edits in the browser: equal to Python on random edits of a model's graph."""

import copy
import json
import random
from typing import Any

import pytest
import torch
from browser import as_tensor, in_node, needs_node, needs_web, plain
from edited import edited_trace, encoded
from pages import Carried, in_page, weights_of
from variants import TEXT, TOKENIZER

from vitral.core.errors import UsageError
from vitral.inspection.edits import Edit, edits_of, existing, heads_by_name
from vitral.model import Transformer
from vitral.page.document import parts_of

pytestmark = pytest.mark.merge
SENTENCES = ("hab\ncab ", "ab", "cc\nhaha")
KINDS = ("zero", "mean", "scale", "set", "patch")
RUN = """
const graph = { ...given.graph, constants: given.constants.map(({ shape, data }) => ({ shape, data })) };
const run = (sentence, edits) => vitral.run(graph, tensors({ tokens: given.sentences[sentence] }), edits);
const others = {};
const theirs = (edit) => (others[edit.from] ??= run(edit.from, {}))[edit.at];
const edits = vitral.editing(vitral.readEdits(given.edits), theirs);
const made = run(given.text, edits);
return Object.fromEntries(Object.entries(made).map(([name, each]) => [name, told(each)]));
"""


def random_edit(model: Transformer, kind: str, rng: random.Random) -> dict[str, Any]:
    heads = heads_by_name(model)
    name = rng.choice(list(heads))
    edit: dict[str, Any] = {"at": name, "do": kind, "positions": "all"}
    if heads[name] and rng.random() < 0.7:
        edit["heads"] = rng.sample(range(heads[name]), rng.randint(1, heads[name]))
    if rng.random() < 0.7:
        edit["positions"] = rng.sample(range(len(TEXT)), rng.randint(1, 3))
    if rng.random() < 0.5:
        edit["columns"] = rng.sample(range(2), rng.randint(1, 2))
    more = {"scale": ("factor", rng.uniform(-2, 2)), "set": ("value", rng.uniform(-2, 2)), "patch": ("from", "")}
    if kind == "patch":
        short = name.rpartition(".")[2] not in ("scores", "scaled", "masked", "weights") and rng.random() < 0.5
        edit["from"] = SENTENCES[1] if short else SENTENCES[0]
        edit["positions"] = [1, 0] if short else edit["positions"]
    elif kind in more:
        edit[more[kind][0]] = more[kind][1]
    return edit


@needs_web
@pytest.mark.parametrize("variant", ["pre", "grouped", "lstm"])
def test_random_edits_do_in_the_browser_what_they_do_in_python(variant: str, carried: Carried) -> None:
    model, content = carried(variant)
    model, graph, constants = copy.deepcopy(model).double(), content.graphs["model"], weights_of(content)
    ids = {text: encoded(text) for text in (TEXT, *SENTENCES)}
    rng = random.Random(variant)
    drawn = [[random_edit(model, kind, rng)] for kind in KINDS for _ in range(2)]
    drawn.append([random_edit(model, rng.choice(KINDS), rng) for _ in range(6)])
    shared = {
        "graph": graph,
        "constants": [plain(constants[each["name"]]) for each in graph["constants"]],
        "sentences": {text: plain(tokens) for text, tokens in ids.items()},
        "text": TEXT,
    }
    found = in_node(RUN, [{**shared, "edits": edits} for edits in drawn], "graph", "tensors", "page/edits")
    for edits, told in zip(drawn, found, strict=True):
        wanted = edited_trace(model, ids[TEXT], None, edits_of(edits), ids.__getitem__)
        for name, value in wanted.items():
            made_there = as_tensor(told[name])
            torch.testing.assert_close(made_there, value, rtol=1e-4, atol=1e-5, equal_nan=True, msg=f"{name} {edits}")


NEXT = """
const { parts, ids, edits, numbers } = given;
const carried = await page.Carried.open(parts);
const sampling = { temperature: 1, top_k: null, top_p: null, min_p: null };
const made = [carried.computed(ids, ["logits"], edits).logits.data].map((each) => Array.from(each));
for await (const { id, logits } of carried.next(ids, { sampling, numbers, prompt: ids.length, edits }))
  made.push([id, ...logits]);
return made;
"""


@needs_node
@pytest.mark.parametrize("variant", ["pre", "lstm"])
def test_patches_count_while_a_page_generates_as_in_python(variant: str, carried: Carried) -> None:
    """Against PyTorch's own trace of every window, past the other sentences and past the context."""
    model, content = carried(variant)
    at = "recurrence.out" if model.config.recurrence is not None else "attn.z"
    edits = [
        {"at": f"blocks.0.{at}", "positions": "all", "do": "patch", "from": TEXT[::-1]},
        {"at": "blocks.1.resid_post", "positions": [1], "do": "patch", "from": "ca b"},
    ]
    if at == "attn.z":
        edits.append({"at": "blocks.1.attn.weights", "positions": "all", "do": "patch", "from": TEXT[1:] + TEXT[:1]})
    ids = TOKENIZER.encode(TEXT).tolist()
    numbers = [0.5, 0.05, 0.95, 0.3, 0.7, 0.2, 0.6]
    ((first, *rest),) = in_page(NEXT, [{"parts": parts_of(content), "ids": ids, "edits": edits, "numbers": numbers}])
    whole = edited_trace(model, torch.tensor([ids]), ["logits"], edits_of(edits), encoded)["logits"]
    torch.testing.assert_close(torch.tensor(first), whole.flatten(), rtol=1e-4, atol=1e-4)
    begin, lengths = 0, {each["from"]: len(each["from"]) for each in edits}
    for token, *logits in rest:
        if len(ids) - begin > model.config.context_length:
            begin = len(ids) - model.config.context_length // 2
        window = torch.tensor([ids[begin:]])
        here = existing(edits_of(edits), window.shape[1], lengths)
        wanted = edited_trace(model, window, ["logits"], here, encoded)["logits"][0, -1]
        torch.testing.assert_close(torch.tensor(logits), wanted, rtol=1e-4, atol=1e-4)
        ids.append(token)
    assert begin > 0


WORDS = [
    *({}, None, 3, "all", [], {"at": "a"}, {"at": 1, "do": "zero"}, {"at": "a", "do": "zero"}),
    *({"at": "a", "do": "zero", "other": 1}, {"at": "a", "do": "zero", "factor": 1}, {"at": "a", "do": "toString"}),
    *({"at": "a", "do": "scale", "factor": 2}, {"at": "a", "do": "scale", "factor": "2"}, {"at": "a", "do": "scale"}),
    *({"at": "a", "do": "patch", "from": ""}, {"at": "a", "do": "patch", "from": 1}, {"at": "a", "do": "set"}),
    *({"at": "a", "do": "zero", "heads": []}, {"at": "a", "do": "zero", "heads": [0]}),
    *({"at": "a", "do": "zero", "heads": [0.5]}, {"at": "a", "do": "zero", "positions": "some"}),
    *({"at": "a", "do": "zero", "positions": [-1]}, {"at": "a", "do": "zero", "positions": [2]}),
    *({"at": "a", "do": "set", "value": each} for each in (1e38, -1e39, 3.4028235e38, 3.4028236e38)),
    *({"at": "a", "do": "zero", "columns": each} for each in ([0], [], [1.5], None, "all", 2)),
    *({"at": "a", "do": "zero", "positions": None}, {"at": "a", "do": "zero", "heads": None}),
]


@needs_web
def test_the_browser_and_python_agree_on_what_an_edit_is() -> None:
    def is_edit(given: Any) -> bool:
        try:
            return isinstance(edits_of([json.loads(json.dumps(given))])[0], Edit)
        except UsageError:
            return False

    found = in_node("return vitral.isEdit(given);", WORDS, "page/edits")
    assert found == [is_edit(each) for each in WORDS]
