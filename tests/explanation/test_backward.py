"""The backward pass: every written equation is true, and the gradients are those of the loss."""

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import torch
from equations import Names, check_equation, equations
from tiers import few
from variants import TEXT, TOKENIZER, TRACED, made

from vitral.core.errors import UsageError
from vitral.core.taps import Recorder
from vitral.explanation import Choice, Example, RunView, Step, parse_example, to_text, walk_backward, walk_run
from vitral.explanation.backward import Backward, loss_of, named_cell
from vitral.explanation.examples.by_name import find_example, gallery
from vitral.explanation.examples.schema import AXES
from vitral.explanation.formulas import text, value_of
from vitral.explanation.formulas.notation import Equation, Number
from vitral.explanation.phrasebook import LANGUAGES, phrases
from vitral.explanation.recipe import SheetQuantity, follow
from vitral.explanation.sheet import Sheet
from vitral.explanation.trace import trace_text
from vitral.report.walkthrough import to_markdown, to_page

BLOCK = """
block = "post"
mask = "causal"
scale = "sqrt"
heads = 2
activation = "ACTIVATION"
norm_type = "NORM"
vocabulary = ["a", "b", "c"]
tokens = ["a", "c", "a"]
tied = true
[given]
embedding = [[0.3, -1, 2, 0.5], [1, 1, 0, -0.4], [0.2, 0.9, -1.1, 1]]
position_embedding = "sinusoidal"
w_q = [[[1, 0.2], [0, 1], [0.5, 0], [0, -0.3]], [[0.1, 0], [1, 1], [0, 2], [0.4, 0]]]
w_k = [[[1, 0.1], [0.2, 1], [0, 0], [0, 0.3]], [[0, 0], [1, -1], [0, 0.2], [0.7, 0]]]
w_v = [[[1, 0], [0, 1], [0, 0.6], [2, 0]], [[0.3, 0], [1, 1], [0, 1], [0.5, -1]]]
b_q = [[0.1, 0.2], [0.3, -0.4]]
w_o = [[1, 0, 0, 0.2], [0, 1, 0.3, 0], [0, 0.5, 1, 0], [0.1, 0, 0, 1]]
b_o = [0.1, 0, -0.2, 0.3]
attn_norm_gain = [1.1, 0.9, 1, 1.2]
attn_norm_bias = [0.1, 0, 0, -0.1]
w_up = [[1, -1, 0.2], [0, 1, 0.3], [0.5, 0, -1], [0.1, 0.4, 1]]
b_up = [0.1, -0.2, 0]
w_down = [[1, 0, 0.4, 0.2], [0.3, 1, 0, -1], [0, 0.2, 1, 0.5]]
GATE
"""


def block(activation: str, norm: str) -> Example:
    gate = "w_gate = [[0.2, 1, 0], [1, 0, 0.5], [0, -0.4, 1], [0.3, 0, 0.6]]" if activation == "swiglu" else ""
    text = BLOCK.replace("ACTIVATION", activation).replace("NORM", norm).replace("GATE", gate)
    text = text.replace("attn_norm_bias", "#") if norm == "rmsnorm" else text
    return parse_example(text)


def true_in_every_cell(backward: Backward) -> int:
    """How many cells have a written equation; each one's last side is the gradient, and that is the one of autograd."""
    written, expected = 0, by_autograd(backward)
    for name in backward.gradients:
        torch.testing.assert_close(backward.gradients[name], expected[name], atol=1e-10, rtol=1e-9)
        for index in torch.cartesian_prod(*(torch.arange(size) for size in backward.gradients[name].shape)).reshape(
            -1, backward.gradients[name].dim()
        ):
            arithmetic = backward.gradient_sheet.arithmetic(f"d{name}", tuple(map(int, index)))
            assert arithmetic.value == pytest.approx(float(backward.gradients[name][tuple(index)]))
            if arithmetic.stages:
                written += 1
                made = value_of(arithmetic.stages[-1])
                if len(arithmetic.stages) > 1 or not math.isnan(made):  # else the copy of another cell
                    assert made == pytest.approx(arithmetic.value, rel=1e-9, abs=1e-12)
    return written


def computed(quantities: Iterable[SheetQuantity], given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    values = dict(given)
    follow(iter(quantities), values)
    return values


def by_autograd(backward: Backward) -> dict[str, torch.Tensor]:
    sheet, loss = backward.sheet, backward.loss
    values = {name: value.clone().requires_grad_() for name, value in sheet.values.items() if name not in sheet}
    made = computed(backward.quantities, values)
    for name in backward.gradients:
        made[name].retain_grad()
    (made[loss.quantity] * loss.seed).sum().backward()
    found = {name: made[name].grad for name in backward.gradients}
    return {name: gradient for name, gradient in found.items() if gradient is not None}


def last_of(sheet: Sheet) -> str:
    """The last quantity of positions that is not a step of the author's."""
    return [made.name for made in sheet.quantities if made.axes[0] in ("time", "heads") and made.name in AXES][-1]


def some_loss(sheet: Sheet) -> Backward:
    """The backward pass of one cell in the middle of the last quantity."""
    name = last_of(sheet)
    return Backward(sheet, loss_of(sheet, name, tuple(size // 2 for size in sheet.values[name].shape)))


@pytest.mark.parametrize("name", [name for name in gallery() if "parameters" not in name])
def test_every_equation_of_every_example_of_the_gallery_is_true(name: str) -> None:
    sheet = find_example(name).sheet
    if name == "column-vectors":
        with pytest.raises(UsageError, match="--backward"):
            some_loss(sheet)
    elif any(made.axes[0] in ("time", "heads") and made.name in AXES for made in sheet.quantities):
        assert true_in_every_cell(some_loss(sheet)) or len(sheet.quantities) == 1


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("activation", ["relu", "squared_relu", "gelu", "gelu_tanh", "swiglu"])
def test_every_equation_of_a_block_is_true_and_so_is_the_loss_of_a_word(activation: str, norm: str) -> None:
    sheet = block(activation, norm).sheet
    of_word = loss_of(sheet, "probabilities", (1, 2), is_log=True)
    for loss in (of_word, loss_of(sheet, "z", (1, 2, 0)), loss_of(sheet, "resid_mid", (2, 1))):
        backward = Backward(sheet, loss)
        assert true_in_every_cell(backward) > 50
        computed_names = {made.name for made in sheet.quantities}
        assert {"embedding", "w_q", "w_k", "w_v"} <= set(backward.gradients) - computed_names


@pytest.mark.parametrize("variant", few(name for name in TRACED if name not in ("neither", "no layer", "dropout")))
def test_every_equation_of_every_kind_of_model_is_true(variant: str) -> None:
    traced = trace_text(made(variant), TOKENIZER, TEXT)
    backward = some_loss(traced.blocks[0][0])
    assert true_in_every_cell(backward) > 100
    assert (
        true_in_every_cell(Backward(traced.ending, loss_of(traced.ending, "probabilities", (2, 1), is_log=True))) > 100
    )


def test_softmax_by_hand() -> None:
    """Two equal scores: weights ½ and ½, so dmasked of the first is ½·(1 − ½) = ¼, of the other −¼."""
    example = parse_example('mask = "causal"\nscale = "none"\n[given]\nscores = [[0, 9], [5, 5]]')
    backward = Backward(example.sheet, loss_of(example.sheet, "weights", (0, 1, 0)))
    assert backward.gradients["masked"][0].tolist() == [[0, 0], [0.25, -0.25]]
    assert backward.gradients["scores"][0].tolist() == [[0, 0], [0.25, -0.25]]


def steps_by_name(walk) -> dict[str, Step]:
    return {step.name: step for step in walk.steps}


def test_the_steps_go_from_the_loss_back_and_each_shows_its_largest_cell() -> None:
    walk = walk_backward(find_example("the-cat-sat"), "output[2,1]")
    names = list(steps_by_name(walk))
    assert named_cell("Attention weights [2, 1]", find_example("the-cat-sat").sheet, 0) == ("weights", (0, 1, 0))
    assert names[0] == "dout"
    assert names.index("dz") < names.index("dweights") < names.index("dscores") < names.index("dq") < names.index("dx")
    for step in walk.steps:
        for panel in step.panels:
            assert abs(panel.matrix[panel.cell[0]][panel.cell[1]]) == max(abs(v) for row in panel.matrix for v in row)
    for write in (to_text, to_page, to_markdown):
        assert "dweights" in write(walk)


@pytest.mark.parametrize(
    "cell", ["output[9,1]", "output[1]", "nothing[1,1]", "out[1,1", "weights[1,2,3,4]", "w_q[1,1]"]
)
def test_a_cell_that_does_not_exist_is_refused(cell: str) -> None:
    with pytest.raises(UsageError, match="--cell"):
        walk_backward(find_example("the-cat-sat"), cell)


def test_what_has_no_gradient_is_refused() -> None:
    with pytest.raises(UsageError, match="--backward"):
        walk_backward(find_example("shakespeare-parameters"))


def test_the_loss_of_a_run_is_that_of_the_next_token() -> None:
    model = made("pre")
    view = RunView((0, 1), Choice(query=2), block=True, ending=True, backward=True)
    walk = walk_run(model, TOKENIZER, TEXT, view)
    assert [chapter.steps[0].name for chapter in walk.chapters] == ["dprobabilities", "dresid_post", "dresid_post"]
    ids = torch.from_numpy(TOKENIZER.encode(TEXT))[None]
    logits = model.double()(ids)
    loss = torch.nn.functional.cross_entropy(logits[0, 2:3], ids[0, 3:4])
    loss.backward()
    embedding, blocks = walk.chapters[0], walk.chapters[2]
    of_head = next(step for step in embedding.steps if step.name in ("dw_u", "dembedding"))
    head = torch.tensor(of_head.panels[0].matrix)
    grad = model.head_weight.grad
    assert grad is not None
    assert torch.allclose(head.T if of_head.name == "dw_u" else head, grad.float(), atol=1e-4)
    up = torch.tensor(next(step for step in blocks.steps if step.name == "dw_up").panels[0].matrix)
    weight = model.get_parameter("blocks.0.mlp.up.weight").grad
    assert weight is not None
    assert torch.allclose(up.T, weight.float(), atol=1e-4)
    with pytest.raises(UsageError, match="--backward"):
        walk_run(made("pre"), TOKENIZER, TEXT, RunView(choice=Choice(query=len(TEXT) - 1), backward=True))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_gradient_goes_through_cross_attention_into_both_texts(norm: str) -> None:
    both = {"shape": "encoder-decoder", "source_length": 7, "encoder_layers": 1, "norm": norm, "d_head": 5, "d_ff": 11}
    model, recorder = made(both).double(), Recorder()
    view = RunView((0, 1), Choice(query=2), block=True, ending=True, backward=True)
    walk = walk_run(model, TOKENIZER, TEXT, view, source="hag")
    ids, source = (torch.from_numpy(TOKENIZER.encode(text))[None] for text in (TEXT, "hag"))
    logits = model(ids, source=source, tap=recorder)
    states = recorder.kept["encoder.final_norm"]
    states.retain_grad()
    torch.nn.functional.cross_entropy(logits[0, 2:3], ids[0, 3:4]).backward()
    found = {step.name: torch.tensor([panel.matrix for panel in step.panels]).squeeze(0) for step in walk.steps}
    shares = [torch.tensor(step.panels[0].matrix) for step in walk.steps if step.name == "dencoder.final_norm"]
    assert len(shares) == 2
    assert states.grad is not None
    torch.testing.assert_close(sum(shares), states.grad[0].float(), atol=1e-6, rtol=1e-4)
    # The last chapter of a name is that of block 0, or of the encoder.
    of = {name: parameter.grad.float() for name, parameter in model.named_parameters() if parameter.grad is not None}
    q, k, _v = of["blocks.0.cross.in_proj.weight"].chunk(3)
    heads = found["dcross.w_q"].shape[0]
    expected = {
        "dcross.w_q": q.view(heads, 5, -1).mT,
        "dcross.w_k": k.view(heads, 5, -1).mT,
        "dcross.w_o": of["blocks.0.cross.out_proj.weight"].T,
        "dcross_norm_gain": of["blocks.0.cross_norm.weight"][None],
        "dw_up": of["blocks.0.mlp.up.weight"].T,
        "dencoder.w_up": of["encoder.blocks.0.mlp.up.weight"].T,
        "dencoder.b_o": of["encoder.blocks.0.attn.out_proj.bias"][None],
    }
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name].view_as(gradient), gradient, atol=1e-6, rtol=1e-4, msg=name)
    traced = trace_text(model, TOKENIZER, TEXT, source="hag")
    for sheet in (*traced.blocks[0], *(() if traced.encoder is None else traced.encoder.blocks[0])):
        assert true_in_every_cell(some_loss(sheet)) > 50


def printed_true(backward: Backward, language: str, digits: int) -> int:
    """How many equations, as printed, agree within their digits: sides in numbers, and of products those in names."""
    say, sheet = phrases(language), backward.sheet
    arrays: dict[str, Any] = {}
    for letters, value in backward.gradient_sheet.writer.values.items():
        whole = value[0] if value.dim() == 3 else value
        arrays[letters] = whole.numpy()
        if letters.startswith("w_"):
            arrays[f"W^{letters[2:].upper() if len(letters) == 3 else letters[2:]}"] = whole.numpy()
    longest = max(value.shape[-1] for value in backward.gradients.values())
    names = Names(arrays, sheet.first, {letter: range(longest) for letter in "ijl"})
    count = 0
    for name in backward.gradients:
        for index in itertools.product(*(range(size) for size in backward.gradients[name].shape)):
            arithmetic = backward.gradient_sheet.arithmetic(f"d{name}", index)
            if not arithmetic.stages:
                continue
            written = text(Equation((*arithmetic.stages, Number(arithmetic.value))), digits, say)
            [sides] = equations(written)
            in_names = {*backward.kinds(name)} <= {"product", "copy"} and "Σ" not in sides[0]
            checked = sides if in_names else sides[1:]
            if len(checked) > 1:
                check_equation(checked, names, digits, comma=language == "pt")
                count += 1
    return count


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", ["the-cat-sat", "o-gato-preto", "pre-norm-to-the-word", "two-ask-three", "sol-e-lua"])
def test_the_equations_as_printed_are_true(name: str, language: str) -> None:
    backward = some_loss(find_example(name).sheet)
    for digits in (2, 4):
        assert printed_true(backward, language, digits) > 5
