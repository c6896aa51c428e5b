"""The walkthrough of a model shows its forward pass, in every variant; its arithmetic results in the same numbers."""

import copy
import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import variants
from tiers import few
from torch import Tensor
from variants import TOKENIZER, TRACED

from vitral.core.errors import UsageError
from vitral.core.names import ATTENTION_STEPS
from vitral.core.streams import torch_stream
from vitral.data import CorpusConfig, Tokenizer, build_tokenizer
from vitral.explanation import Choice, RunView, Step, parse_example, phrases, to_text, walk_example, walk_run
from vitral.explanation.formulas import text as as_text
from vitral.explanation.phrasebook import catalogue
from vitral.explanation.trace import trace_text
from vitral.model import ModelConfig, Transformer
from vitral.report.walkthrough import to_latex

TEXT = "abBda"
SIZES = {"d_model": 24, "num_layers": 2, "num_heads": 6, "context_length": 23}
SAY = phrases("en")


def tokenizer() -> Tokenizer:
    return build_tokenizer(CorpusConfig(), "abBd", [])


def model(**changes) -> Transformer:
    made = Transformer(ModelConfig.parse({**SIZES, **changes}), 5, seed=3)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch_stream(5, name)))
    return made.double().eval()


def steps_of(made: Transformer, text: str = TEXT, **view) -> dict[str, Step]:
    return {step.name: step for step in walk_run(made, tokenizer(), text, RunView(**view)).steps}


def told(step: Step, cell: tuple[int, int] | None = None, language: str = "en") -> str:
    panel = step.panels[0]
    return as_text(panel.working(*(cell or panel.cell)).equation(), 12, phrases(language))


@pytest.mark.parametrize("variant", TRACED)
def test_every_number_is_the_traces(variant: str) -> None:
    made = variants.made(variant).double()
    trace = made.trace(torch.from_numpy(TOKENIZER.encode(variants.TEXT))[None])
    seen = trace_text(made, TOKENIZER, variants.TEXT, [("temperature", 0.5), ("top_k", 3.0)])
    for layer, (sheet,) in enumerate(seen.blocks):
        prefix = f"blocks.{layer}."
        recorded = {name.removeprefix(prefix).removeprefix("attn."): name for name in trace if name.startswith(prefix)}
        assert recorded.keys() - sheet.values.keys() <= {"resid_post"}
        for quantity in sheet.quantities:
            assert torch.equal(sheet.values[quantity.name], trace[recorded[quantity.name]][0]), quantity.name
    for sheet, name in ((seen.embedding, "embed"), (seen.ending, "final_norm"), (seen.ending, "logits")):
        if name in sheet:
            assert torch.equal(sheet.values[name], trace[name][0])
    for sheet in (seen.embedding, *itertools.chain(*seen.blocks), seen.ending):
        for quantity in sheet.quantities:  # each operation makes what the model made
            torch.testing.assert_close(quantity.make(sheet.values), sheet.values[quantity.name], rtol=1e-9, atol=1e-9)


TRANSLATORS = {
    "pre-norm": {},
    "post-norm": {"norm": "post", "residual": False},
    "no norm": {"norm": "none", "bias": False, "feed_forward": "none"},
    "rotary": {"positions": "rotary", "num_kv_heads": 2, "feed_forward": "swiglu"},
    "alibi": {"positions": "alibi", "attention": {"scale": "learned-per-head"}, "norm_type": "rmsnorm"},
}


def steps_made(made: Transformer, source: str) -> dict[str, tuple[Tensor, Tensor]]:
    """By the name in a trace: the number of a step, and what its tree computes from those before."""
    seen, steps = trace_text(made, tokenizer(), TEXT, source=source), {}
    assert seen.encoder is not None
    for side, each in (("encoder.", seen.encoder), ("", seen)):
        inside = [(f"{side}blocks.{at}.", sheet) for at, sheets in enumerate(each.blocks) for sheet in sheets]
        for prefix, sheet in [(side, each.embedding), *inside, (side, each.ending)]:
            for quantity in sheet.quantities:
                name = sheet.called(quantity.name).removeprefix(side)
                name = f"attn.{name}" if name in ("q_pre", "k_pre", *ATTENTION_STEPS) else name
                steps[prefix + name] = sheet.values[quantity.name], quantity.make(sheet.values)
    return steps


@pytest.mark.parametrize("variant", TRANSLATORS)
def test_every_step_of_an_encoder_decoder_is_made_as_the_model_made_it(variant: str) -> None:
    made = model(shape="encoder-decoder", encoder_layers=1, source_length=7, **TRANSLATORS[variant])
    ids = [torch.from_numpy(tokenizer().encode(text))[None] for text in (TEXT, "dBadB")]
    trace, steps = made.trace(ids[0], source=ids[1]), steps_made(made, "dBadB")
    for name, (value, computed) in steps.items():
        torch.testing.assert_close(computed, value, rtol=1e-9, atol=1e-9, msg=name)
        assert name not in trace or torch.equal(value, trace[name][0]), name
    left = {name for name in trace if name not in steps and not name.endswith(("resid_pre", "embed"))}
    assert left <= {name for name in trace if name.endswith(("final_norm", "resid_post"))}, left
    assert {f"blocks.1.cross.{step}" for step in ATTENTION_STEPS} <= steps.keys()


def test_cross_attention_is_told_of_both_texts() -> None:
    made = model(shape="encoder-decoder", encoder_layers=1)
    told = walk_run(made, tokenizer(), TEXT, RunView(), source="dBa")
    assert [chapter.steps[-1].name for chapter in told.chapters] == ["encoder.out", "out", "cross.out"]
    weights = next(step for step in told.steps if step.name == "cross.weights").panels[0]
    assert [label[2:] for label in weights.row_labels] == list(TEXT)
    assert [label[2:] for label in weights.column_labels] == list("dBa")
    for source in (None, ""):
        with pytest.raises(UsageError):
            walk_run(made, tokenizer(), TEXT, source=source)
    with pytest.raises(UsageError):
        walk_run(model(), tokenizer(), TEXT, source="dBa")
    with pytest.raises(UsageError, match="parallel"):
        walk_run(model(shape="encoder-decoder", parallel=True), tokenizer(), TEXT, source="dBa")


def test_a_model_in_single_precision_is_shown_in_double_precision() -> None:
    made = model(positions="alibi", attention={"scale": "adaptive"}).float()
    trace = copy.deepcopy(made).double().trace(torch.from_numpy(tokenizer().encode(TEXT))[None])
    for name, step in steps_of(made, choice=Choice(heads=(2,), query=2)).items():
        value = trace[f"blocks.0.attn.{name}"][0]
        shown = np.array(step.panels[0].matrix)
        np.testing.assert_array_equal(shown, (value if name == "out" else value[2]).double().numpy())
    assert all(parameter.dtype == torch.float32 for parameter in made.parameters())


def integers() -> Transformer:
    """x of a is (1, 0) and of b (0, 1); q is (1, 2) and (0, 1), k (1, 0) and (1, 3), v (9, 0) and (0, 18)."""
    changes = {"d_model": 2, "num_layers": 1, "num_heads": 1, "context_length": 3}
    parts = {"norm": "none", "positions": "none", "feed_forward": "none", "bias": False}
    made = Transformer(ModelConfig.parse({**changes, **parts, "attention": {"scale": math.log(2)}}), 5).double().eval()
    with torch.no_grad():
        made.token_embedding.weight[1:3] = torch.eye(2)
        projections = [[1, 2], [0, 1]], [[1, 0], [1, 3]], [[9, 0], [0, 18]]
        attention = made.get_submodule("blocks.0.attn")
        attention.get_parameter("in_proj.weight").copy_(torch.cat([torch.tensor(matrix).T for matrix in projections]))
        attention.get_parameter("out_proj.weight").copy_(torch.tensor([[1, 0], [1, 1]]))
    return made


def test_a_model_of_small_integers_can_be_followed_by_hand() -> None:
    letters = build_tokenizer(CorpusConfig(), "abcd", [])
    view = RunView(choice=Choice(heads=(0,), query=1, key=1))
    steps = {step.name: step for step in walk_run(integers(), letters, "ab", view).steps}
    lines = {
        name: as_text(step.panels[0].working(*step.panels[0].cell).equation(), 3, SAY) for name, step in steps.items()
    }
    assert lines == {
        "q": "q[1,0] = resid_pre[1]·W^Q[:,0] = 0·1 + 1·0 = 0",
        "k": "k[1,0] = resid_pre[1]·W^K[:,0] = 0·1 + 1·1 = 1",
        "v": "v[1,0] = resid_pre[1]·W^V[:,0] = 0·9 + 1·0 = 0",
        "scores": "scores[1,1] = q[1]·k[1] = 0·1 + 1·3 = 3",
        "scaled": "scaled[1,1] = scores[1,1]·s = 3·0.693 = 2.079",  # 3 ln 2
        "masked": "masked[1,1] = scaled[1,1] = 2.079",
        "weights": "weights[1,1] = exp(masked[1,1]) / (Σ_l exp(masked[1,l])) = exp(2.079) / (exp(0) + exp(2.079))"
        " = 8 / (1 + 8) = 0.889",
        "z": "z[1,0] = Σ_j weights[1,j]·v[j,0] = 0.111·9 + 0.889·0 = 1",
        "out": "out[1,0] = z[1]·W^O[:,0] = 1·1 + 16·0 = 1",
    }
    np.testing.assert_allclose(steps["z"].panels[0].matrix, [[9, 0], [1, 16]], rtol=1e-12)
    np.testing.assert_allclose(steps["out"].panels[0].matrix, [[9, 9], [1, 17]], rtol=1e-12)


SENTENCES: list[tuple[dict, str, str, dict]] = [
    ({}, "scaled", "scaled_sqrt", {"d_head": 4, "factor": "0.5"}),
    ({"attention": {"scale": "none"}}, "scaled", "scaled_none", {}),
    ({"attention": {"scale": "linear"}}, "scaled", "scaled_linear", {"d_head": 4, "factor": "0.25"}),
    ({"attention": {"scale": 0.3}}, "scaled", "scaled_number", {"factor": "0.3"}),
    ({"attention": {"scale": "adaptive"}}, "scaled", "scaled_adaptive", {"row": "position 4 (a)"}),
    ({"attention": {"scale": "learned"}}, "scaled", "scaled_learned", {}),
    ({"attention": {"scale": "learned-per-head"}}, "scaled", "scaled_learned-per-head", {}),
    ({"positions": "alibi"}, "masked", "masked_bias", {"bias": "−0.472"}),  # 3 · 2^(-8/3)
    ({}, "masked", "masked_all", {"row": "position 4 (a)"}),
    ({"positions": "rotary"}, "q", "rotated", {}),
    ({"positions": "rotary"}, "k_pre", "before_rotation", {"what": "keys"}),
    ({"num_kv_heads": 3}, "k", "shared", {"heads": "0–1"}),
    ({"num_kv_heads": 2}, "v", "shared", {"heads": "0–2"}),
]


def says(sentence: str, key: str, **places: object) -> bool:
    """Whether a sentence contains the phrase, with any text in the placeholders that are not given."""
    phrase = catalogue()[f"sentences.{key}"]
    pattern = re.sub(r"\\{(\w+)\\}", lambda place: re.escape(str(places.get(place[1], "\0"))), re.escape(phrase))
    return re.search(pattern.replace("\0", ".+").replace("\\\0", ".+"), sentence, re.IGNORECASE) is not None


@pytest.mark.parametrize(("changes", "name", "key", "places"), SENTENCES)
def test_sentences_describe_this_model(changes: dict, name: str, key: str, places: dict) -> None:
    steps = steps_of(model(**changes), choice=Choice(heads=(1,), query=4, key=1))
    assert says(steps[name].sentence, key, **places)


def test_a_masked_pair_has_weight_0() -> None:
    steps = steps_of(model(), choice=Choice(heads=(0,), query=1, key=3))
    assert says(steps["masked"].sentence, "masked_some", seen=2, all=5)
    assert told(steps["masked"]).endswith("− ∞ = −∞")
    assert says(steps["weights"].sentence, "weights_none", column="position 3 (d)")
    assert says(steps["z"].sentence, "z_many", seen=2)
    assert says(steps_of(model(), choice=Choice(heads=(0,), query=0))["z"].sentence, "z_one")


def test_a_position_that_may_attend_to_nothing_has_weights_of_0() -> None:
    text = "mask = [[0, 0]]\nscale = 'none'\n[given]\nscores = [[1, 2]]\nv = [[1], [2]]\n"
    example = parse_example(text)
    steps = {step.name: step for step in walk_example(example).steps}
    assert says(steps["weights"].sentence, "weights_empty")
    assert says(steps["z"].sentence, "z_none")


def test_without_a_cell_the_middle_position_meets_the_key_it_weighs_most_and_one_hidden_from_it() -> None:
    steps = steps_of(model())
    panel = steps["weights"].panels[0]
    assert panel.cell[0] == 2
    assert panel.matrix[2][panel.cell[1]] == max(panel.matrix[2])
    assert panel.also == steps["masked"].panels[0].also == ((2, 3),)
    assert steps["masked"].panels[0].matrix[2][3] == -math.inf
    hidden = as_text(panel.working(2, 3).equation(), 3, SAY)
    assert "exp(−∞)" in hidden
    assert hidden.endswith("= 0")
    last = steps_of(model(), ending=True, block=True)
    assert last["weights"].panels[0].cell[0] == 4
    assert (
        last["masked"].panels[0].matrix[last["masked"].panels[0].also[0][0]][last["masked"].panels[0].also[0][1]]
        == -math.inf
    )


def test_all_layers_and_heads_and_the_ending_are_told_when_asked_for() -> None:
    walk = walk_run(model(), tokenizer(), TEXT, RunView(None, Choice(), block=True, ending=True))
    assert [chapter.title for chapter in walk.chapters] == ["Embedding", "Block 0", "Block 1", "Head and next token"]
    block = {step.name: step for step in walk.chapters[1].steps}
    assert len(block["weights"].panels) == 6
    assert next(iter(block)) == "attn_norm"
    assert list(block)[-1] == "resid_post"
    view = RunView(choice=Choice(query=1), block=True, backward=True)
    assert walk_run(model(feed_forward="none"), tokenizer(), TEXT, view).steps[0].name == "dresid_mid"
    ending = [step.name for step in walk.chapters[-1].steps]
    distributions = ["temperature_0.5", "top_k_3", "top_p_0.9"]
    assert ending == ["final_norm", "logits", "probabilities", "greedy", *distributions, "beam", "beam_probability"]


@pytest.mark.parametrize("layers", few([(None,), ((0,),), ((1,),)], 3))
@pytest.mark.parametrize("block", [False, True])
def test_no_name_has_two_values(layers: tuple[int, ...] | None, block: bool) -> None:
    walk = walk_run(model(), tokenizer(), TEXT, RunView(layers, Choice(), block=block, ending=True))
    known: dict[tuple[str, str], float] = {}
    for panel in [panel for step in walk.steps for panel in step.panels]:
        for row, values in enumerate(panel.matrix):
            for column, value in enumerate(values):
                name = as_text(panel.working(row, column).target, 3, SAY), panel.label
                assert known.setdefault(name, value) == value, name
    last = next(step for step in walk.steps if step.name == "final_norm")
    assert "resid_post^(1)" in as_text(last.formula, 3, SAY)


def test_blocks_that_are_not_shown_are_named() -> None:
    made = model(num_layers=4)
    for layers, unshown in ((None, None), ((1,), "0, 2, 3"), ((0, 1, 3), "2")):
        walk = walk_run(made, tokenizer(), TEXT, RunView(layers, Choice(), block=True, ending=True))
        intro = " ".join(walk.intro)
        told = [SAY(f"explain.{key}", blocks=unshown or "") in intro for key in ("unshown", "unshown_one")]
        assert told == [unshown == "0, 2, 3", unshown == "2"]
    plain = walk_run(made, tokenizer(), TEXT, RunView((1,), Choice()))
    assert "^(" not in to_text(plain)  # one block alone: its names need no number


@pytest.mark.parametrize("form", ["text", "latex"])
def test_a_choice_is_a_word(form: str) -> None:
    walk = walk_run(model(), tokenizer(), TEXT, RunView((0,), Choice(), ending=True))
    steps = {step.name: step for step in walk.steps}
    greedy, beam = (steps[name].panels[0] for name in ("greedy", "beam"))
    word = tokenizer().label(int(greedy.matrix[0][0]))
    assert greedy.words == ((word,),)
    assert as_text(greedy.working(0, 0).equation(), 3, SAY).endswith(f"= {word}" if word.isalpha() else f"= “{word}”")
    assert len(beam.words[0]) == len(beam.matrix[0])
    factors = as_text(steps["beam_probability"].panels[0].working(0, 0).stages[-1], 3, SAY).split("·")
    assert len(factors) == len(beam.words[0])
    assert word in (to_text(walk) if form == "text" else to_latex(walk))


@pytest.mark.parametrize("column", [0, 1, 2, 17])
def test_the_cell_worked_through_is_one_that_is_labelled_whatever_the_column(column: int) -> None:
    choice = Choice(query=2, key=1, column=column)
    walk = walk_run(model(), tokenizer(), TEXT, RunView(None, choice, block=True, ending=True))
    assert max(len(panel.matrix[0]) for panel in walk.chapters[-1].steps[-2].panels) > 1  # beam: several tokens
    for panel in [panel for step in walk.steps for panel in step.panels]:
        assert panel.cell[0] < len(panel.row_labels)
        assert panel.cell[1] < len(panel.column_labels)
    assert to_text(walk).count("\n") > 100


def test_a_model_in_training_is_shown_as_it_is_used_and_left_in_training() -> None:
    made = model(dropout=0.5)
    expected = trace_text(made, tokenizer(), TEXT).ending.values["logits"]
    made.train()
    assert torch.equal(trace_text(made, tokenizer(), TEXT).ending.values["logits"], expected)
    assert all(module.training for module in made.modules())


REFUSALS = [
    ({"layers": (2,)}, TEXT, "--layer 2: there are 2, counted from 0"),
    ({"choice": Choice(heads=(6,))}, TEXT, "--head 6: there are 6, counted from 0"),
    ({"choice": Choice(heads=(-1,))}, TEXT, "--head -1"),
    ({"choice": Choice(column=10**6)}, TEXT, "--column 1000000: there are"),
    ({"choice": Choice(heads=(0,), query=5)}, TEXT, "--query 5: there are 5, counted from 0"),
    ({"choice": Choice(heads=(0,), key=-1)}, TEXT, "--key -1: there are"),
    ({}, "", "the text is empty"),
    ({}, "ab" * 12, "the text has 24 tokens, but the model's context holds 23"),
    ({}, "abz", "'z'"),
    ({"language": "fr"}, TEXT, "--lang fr: known: en, pt"),
]


@pytest.mark.parametrize(("view", "text", "complaint"), REFUSALS)
def test_what_is_not_there_is_refused(view: dict, text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as refusal:
        walk_run(model(), tokenizer(), text, replace(RunView(), **view))
    assert complaint in str(refusal.value)


def test_without_attention_the_block_can_still_be_told() -> None:
    made = model(attention="none")
    with pytest.raises(UsageError, match="has no attention"):
        walk_run(made, tokenizer(), TEXT)
    names = [step.name for step in walk_run(made, tokenizer(), TEXT, RunView(block=True, choice=Choice())).steps]
    assert "mlp.out" in names
    assert "weights" not in names
