"""Reading worked examples: what may be given, what is refused, and on which line."""

import math

import pytest
import torch

from vitral.attention import attend_traced
from vitral.core.errors import UsageError
from vitral.core.language import in_language
from vitral.core.names import ATTENTION_STEPS, BLOCK_STEPS
from vitral.explanation import Choice, Example, Verdict, check, parse_example, walk_example
from vitral.explanation.examples.by_name import find_example, gallery


def read(text: str) -> Example:
    return parse_example(text)


HEAD = 'mask = "causal"\nscale = "none"\n'
X = "x = [[1, 0], [0, 1]]\n"
IDENTITIES = "".join(f"{name} = 'identity'\n" for name in ("w_q", "w_k", "w_v", "w_o"))
REFUSALS = [
    # a file that is not TOML, a number that is not one, a missing matrix, shapes that do not fit
    ("[given\n", 1, "not TOML"),
    ("[given]\nx = [[1,\n", 2, "not TOML"),
    ("[given]\nx = [[1]]\nx = [[2]]\n", 3, "not TOML"),
    ("[given]\nx = []\n", 2, "x: expected a number, a list"),
    ("title = 3\n[given]\nx = [[1]]\n", 1, "title: input should be a valid string"),
    ("titel = 'a'\n[given]\nx = [[1]]\n", 1, "unknown key 'titel', did you mean 'title'?"),
    ("title = 'no given'\n", None, "no [given] table"),
    (HEAD + "[given]\n" + X + "w_q = [[1, 0], [zero, 1]]\n", 5, "not TOML"),
    (HEAD + '[given]\nscores = [[1, "two"]]\n', 4, "scores: 'two' is not a number"),
    (HEAD + "[given]\nscores = [[1, true]]\n", 4, "scores: True is not a number"),
    (HEAD + '[given]\nscores = [[1, "?"]]\n', 4, "scores: '?' is not a number"),
    (
        HEAD + "[given]\nscores = [\n  [1, 2],\n  [3],\n]\n",
        6,
        "scores: 1 numbers, expected 2 numbers",
    ),
    (HEAD + "[given]\nscores = [1, [2]]\n", 4, "scores: one number, expected 1 numbers"),
    (HEAD + "[given]\nscores = 3\n", 4, "scores: expected a list of rows or a list of matrices, not a number"),
    (HEAD + "[given]\nscores = [[nan]]\n", 4, "is not a number"),
    (HEAD + "[given]\nscores = [[inf]]\n", 4, "scores: every number must be finite"),
    (HEAD + "[given]\nscores = [[1e300]]\n", 4, "too large"),
    (
        HEAD + "[given]\n" + X + "w_q = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]\n",
        5,
        "w_q is 1 × 3 × 3: its d_model is 3, expected 2 as in x",
    ),
    (
        HEAD + "[given]\n" + X + 'w_q = "identity"\n[claimed]\nk = [[1, 0], [0, 1]]\n',
        7,
        "k: cannot be computed, w_k is missing",
    ),
    (
        HEAD + "[given]\n" + X + 'w_q = "identity"\n[claimed]\nscores = [[1, 0], [0, 1]]\n',
        7,
        "scores: cannot be computed, w_k is missing",
    ),
    (HEAD + "[given]\nw_q = 'identity'\n", 4, "its size is not known"),
    (
        HEAD + "[given]\nscores = [[1]]\n[claimed]\nweights = [[1, 2]]\n",
        6,
        "weights: 2 numbers, expected 1 numbers",
    ),
    (HEAD + "[given]\nscors = [[1]]\n", 4, "unknown name 'scors' under [given], did you mean 'scores'?"),
    (
        HEAD + "[given]\nscores = [[1]]\n[claimed]\nweight = [[1]]\n",
        6,
        "unknown name 'weight' under [claimed], did you mean 'weights'?",
    ),
    ("scale = 'none'\n[given]\nscores = [[1]]\n[claimed]\nmasked = [[1]]\n", 5, "mask: is needed"),
    ("mask = 'causal'\n[given]\nscores = [[1]]\n[claimed]\noutput = [[1]]\n", 5, "scale: is needed"),
    (
        "mask = 'causal'\nscale = 'sqrt'\n[given]\nscores = [[1]]\n",
        4,
        "d_k: the scale 'sqrt' needs the width of a head",
    ),
    (
        "mask = 'causal'\nscale = 'learned'\n[given]\nscores = [[1]]\n",
        4,
        "factor: the scale 'learned' needs the learned factor",
    ),
    ("mask = 'casual'\nscale = 'none'\n[given]\nscores = [[1]]\n", 1, "did you mean 'causal'?"),
    (
        "mask = [[true], [true, false]]\nscale = 'none'\n[given]\nscores = [[1]]\n",
        1,
        "rows of true and false of equal length",
    ),
    ("mask = { name = 'padding' }\nscale = 'none'\n[given]\nscores = [[1]]\n", 1, "padding needs real"),
    (
        "mask = { name = 'padding', real = [true] }\nscale = 'none'\n[given]\nscores = [[1, 2], [3, 4]]\n",
        4,
        "is not [batch, 2]",
    ),
    ("mask = { name = 'padding', real = [true, 2] }\nscale = 'none'\n[given]\nscores = [[1, 2]]\n", 1, "needs real"),
    ("mask = 'prefix'\nscale = 'none'\n[given]\nscores = [[1]]\n", 1, "mask prefix: length: is required here"),
    (
        "mask = { name = 'window', size = 0 }\n[given]\nscores = [[1]]\n",
        1,
        "mask window: size: input should be",
    ),
    ("mask = ['causal', 3]\nscale = 'none'\n[given]\nscores = [[1]]\n", 1, "mask: expected a name, a table"),
    ("scale = 1e9\nmask = 'causal'\n[given]\nscores = [[1]]\n", 1, "scale"),
    (HEAD + "[given]\nz = [[1]]\nb_o = [1]\n", 5, "b_o: is added after w_o"),
    (
        HEAD + "[given]\nscores = [[1]]\n[claimed]\nmlp.hidden = [[1]]\n",
        6,
        'mlp.hidden: belongs to a block; say block = "pre"',
    ),
    (HEAD + "[given]\nz = [[1]]\n[claimed]\nout = [[1]]\noutput = [[1]]\n", 7, "output: a cell is claimed twice"),
    (HEAD + "[given]\nscores = [[" + "9" * 400 + "]]\n", 4, "too large"),
    (
        "vocabulary = ['a']\n[given]\nprobabilities = [1]\n[claimed]\ntemperature_0.5 = [1]\n",
        5,
        'a key with a point needs quotes, as "temperature_0.5" = […]',
    ),
    ("vocabulary = ['a']\n[given]\nprobabilities = [1]\n[claimed]\ntop_p_nan = [1]\n", 5, "'nan' is not a number"),
    ("vocabulary = ['a', 'b']\n[given]\nprobabilities = [1]\n", 3, "its vocab is 1, expected 2 as in vocabulary"),
    ("vocabulary = ['a']\n[given]\nd_k = 1\n[claimed]\ngreedy = 'a'\n", 5, "probabilities (or logits) is missing"),
    (
        "block = 'post'\nepsilon = 0\n" + HEAD + "[given]\nx = [[1, 1]]\n" + IDENTITIES,
        6,
        "a cell is not a number, as a norm of equal numbers with epsilon = 0",
    ),
    ("scale = 'root'\n[given]\nscores = [[1]]\n", None, "scale"),
    ("decimals = -1\n[given]\nscores = [[1]]\n", None, "decimals"),
    ("heads = 2\n" + HEAD + "[given]\nscores = [[1]]\n", 5, "its heads is 1, expected 2 as in heads"),
    (HEAD + "tokens = ['a']\n[given]\n" + X, 5, "its time is 2, expected 1 as in tokens"),
    ("[given]\nprobabilities = [0.5, 0.2]\n", 2, "expected shares of one"),
    ("[given]\nprobabilities = [1.5, -0.5]\n", 2, "expected shares of one"),
    ("[given]\nprobabilities = [0.5, 0.5]\n[claimed]\ngreedy = 'a'\n", 4, "vocabulary: is missing"),
    (
        "vocabulary = ['a', 'b']\n[given]\nprobabilities = [0.5, 0.5]\n[claimed]\ngreedy = 'c'\n",
        5,
        "'c' is not in the vocabulary (a, b)",
    ),
    (
        "vocabulary = ['a', 'b']\n[given]\nprobabilities = [0.5, 0.5]\n[claimed]\ntop_k_3 = [1, 0]\n",
        5,
        "top_k_3: 3 is more than the vocabulary's 2",
    ),
    ("vocabulary = ['a', 'b']\n[given]\nprobabilities = [0.5, 0.5]\n[claimed]\ntop_k_1.5 = [1, 0]\n", None, "top_k_1"),
    (
        "vocabulary = ['a', 'b']\n[given]\nnext = [[1, 0], [0, 1]]\n[claimed]\nbeam = ['a']\n",
        5,
        "beam: cannot be computed, start is missing",
    ),
    ("[given]\nmodel = 3\nvocab_size = 3\n[claimed]\ntotal = 1\n", 2, "model: input should be a valid dictionary"),
    ("[given]\n[given.shapes]\na = [true]\n[claimed]\ntotal = 1\n", 3, "shapes.a.0: input should be a valid integer"),
    ("[given]\n[given.shapes]\na = [2]\n[claimed.rows]\na = [2]\n", 5, "[2] is not a number"),
    ("[given]\n[given.shapes]\na = [2]\n[claimed]\nrows = {}\n", 5, "rows: expected a table of names and counts"),
    (
        "[given]\n[given.shapes]\n'a.b' = [2]\n[claimed.rows]\na.b = 2\n",
        5,
        "row 'a': a name with points needs quotes, as \"a.b\" = 0",
    ),
    (
        "[given]\npreset = 'shakespeare'\nvocab_size = 3\n[claimed.rows]\n'" + "{0,1}" * 20 + "' = 3\n",
        5,
        "its braces stand for too many names",
    ),
    ("[given]\nmodel = { d_model = 7 }\nvocab_size = 3\n[claimed]\ntotal = 1\n", 2, "num_heads"),
    ("[given]\npreset = 'shakespear'\nvocab_size = 3\n", 2, "did you mean 'shakespeare'?"),
    ("[given]\npreset = 'shakespeare'\n", 2, "vocab_size: give the number"),
    (
        "[given]\npreset = 'shakespeare'\nvocab_size = 3\n[claimed.rows]\n'wse.weight' = 3\n",
        5,
        "row 'wse.weight' is none of the model's",
    ),
    ("[given.shapes]\n'a' = [2, 3]\n[claimed.rows]\n'b' = 3\n", 4, "row 'b' is none of the model's"),
]


@pytest.mark.parametrize(("text", "line", "complaint"), REFUSALS)
def test_what_cannot_be_is_refused_in_one_line_that_names_its_own(text: str, line: int | None, complaint: str) -> None:
    with pytest.raises(UsageError) as refusal:
        read(text)
    told = str(refusal.value)
    assert complaint in told
    if line is not None:
        assert f"line {line}" in told
        with in_language("pt"):
            assert f"linha {line}:" in str(refusal.value)


def test_files_that_cannot_be_read(tmp_path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        find_example(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes('title = "é"\n'.encode("latin-1"))
    with pytest.raises(UsageError, match="not UTF-8 at byte 9"):
        find_example(tmp_path / "latin.toml")
    with pytest.raises(UsageError, match="cannot be read"):
        find_example(tmp_path)
    with pytest.raises(UsageError, match="did you mean 'causal-mask'"):
        find_example("causalmask")
    (tmp_path / "large.toml").write_text("#" * 2_000_000)
    with pytest.raises(UsageError, match="cannot be read"):
        find_example(tmp_path / "large.toml")
    (tmp_path / "deep.toml").write_text("[given]\nx = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(UsageError, match="deep"):
        find_example(tmp_path / "deep.toml")


@pytest.mark.parametrize("name", [name for name in gallery() if "scores" in gallery()[name]])
def test_an_examples_numbers_are_the_traced_executions(name: str) -> None:
    example = find_example(name)
    values, parts = example.sheet.values, example.sheet.architecture
    if not all(each in values for each in ("q", "k", "v", "weights")) or parts.scale in (
        "learned",
        "learned-per-head",
    ):
        return
    if parts.softmax_base != math.e or any(step in example.document.data.get("steps", {}) for step in ATTENTION_STEPS):
        return
    assert parts.mask is not None
    time, source = values["weights"].shape[1:]
    allowed = parts.mask.allowed(time, source).reshape(-1, time, source)
    traced = attend_traced(values["q"], values["k"], values["v"], mask=allowed, scale=parts.scale or "none")
    for step in ("scores", "scaled", "masked", "weights", "z"):
        torch.testing.assert_close(values[step], getattr(traced, step), rtol=1e-12, atol=1e-12)


def test_the_gallery_covers_what_it_should() -> None:
    texts = "\n".join(text for text in gallery().values())
    for word in (
        '"bidirectional"', '"causal"', '"prefix"', '"window"', '"padding"', "heads = 2",
        '"none"', '"sqrt"', '"linear"', '"adaptive"', '"learned"', '"learned-per-head"',
        '"sinusoidal"', 'block = "pre"', 'block = "post"', "tied = true",
        "greedy =", "beam =", "top_k_", "temperature_",
    ):  # fmt: skip
        assert word in texts, word
    assert len(gallery()) >= 19
    assert all(find_example(name).note for name in gallery())


def test_embeddings_of_words_and_the_sinusoids() -> None:
    example = read(
        'vocabulary = ["a", "b"]\ntokens = ["b", "b"]\ndecimals = 3\n[given]\nembedding = [[1, 2], [3, 4]]\n'
        'position_embedding = "sinusoidal"\n[claimed]\nx = [[3, 5], [3.841, 4.540]]\n'  # sin 1, cos 1
    )
    assert check(example).worst is Verdict.right


BLOCK = """
block = "{norm}"
mask = "causal"
scale = "none"
decimals = 3
[given]
x = [[3, 1], [1, 5]]
w_q = "identity"
w_k = "identity"
w_v = "identity"
attn_norm_gain = [2, 3]
attn_norm_bias = [1, 0]
mlp_norm_gain = [1, 2]
mlp_norm_bias = [0, 1]
w_1 = [[1, -1, 2], [0, 2, 1]]
b_1 = [0, 1, 0]
w_2 = [[1, 0], [0, 1], [1, 1]]
b_2 = [1, 0]
[claimed]
{claims}
mlp.pre = [["?", "?", "?"], ["?", "?", "?"]]
mlp.hidden = [["?", "?", "?"], ["?", "?", "?"]]
mlp.out = [["?", "?"], ["?", "?"]]
output = [["?", "?"], ["?", "?"]]
"""
OWN = {"x = ": "resid_pre = ", "w_1": "w_up", "b_1": "b_up", "w_2": "w_down", "b_2": "b_down", "output": "resid_post"}


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_other_keys_stand_for_the_names_of_a_trace(norm: str) -> None:
    claims = {"pre": ("attn_norm", "mlp_norm"), "post": ("attn_sum", "mlp_sum")}[norm]
    old = BLOCK.format(norm=norm, claims="\n".join(f'{name} = [["?", "?"], ["?", "?"]]' for name in claims))
    new = old
    for key, name in OWN.items():
        new = new.replace(key, name)
    quoted = new.replace("mlp.pre", '"mlp.pre"').replace("mlp.out = ", '"mlp.out" = ')
    examples = [read(text) for text in (old, new, quoted)]
    for example in examples:
        assert [claim.name for claim in example.claims] == [claim.name for claim in examples[0].claims]
        assert set(example.sheet.values) == set(examples[0].sheet.values)
        for name, value in example.sheet.values.items():
            assert torch.equal(value, examples[0].sheet.values[name]), name
    steps = {f"blocks.0.{name}" for name in BLOCK_STEPS} | {f"blocks.0.attn.{name}" for name in ATTENTION_STEPS}
    names = {quantity.name for quantity in examples[0].sheet.quantities}
    assert {f"blocks.0.{name}" for name in names} - steps == {f"blocks.0.{name}" for name in ATTENTION_STEPS}
    assert examples[0].claims[-1].label == "output"
    assert [claim.label for claim in examples[1].claims] == [claim.name for claim in examples[1].claims]


@pytest.mark.parametrize("key", ["embed = [[3, 1]]", "resid_pre = [[3, 1]]"])
def test_a_quantity_is_given_once(key: str) -> None:
    with pytest.raises(UsageError, match="line 4: x: is given twice"):
        read(f"mask = 'causal'\n[given]\nx = [[3, 1]]\n{key}\n")


def test_a_gated_feed_forward_by_hand() -> None:
    """SiLU(0) = 0 and SiLU(large) = large: the first hidden number is 0, the second 40 · 2."""
    text = "block = 'pre'\nactivation = 'swiglu'\ndecimals = 1\n[given]\nmlp_norm = [[1, 0]]\n"
    text += "w_gate = [[0, 40], [0, 0]]\nw_up = [[1, 2], [0, 0]]\n[claimed]\nmlp.hidden = [[0, 80]]\n"
    assert check(read(text)).worst is Verdict.right


def test_a_block_may_begin_in_the_middle() -> None:
    """norm((1, 3)) = (-1, 1), times (1, 1) is 0, and the stream keeps (1, 3)."""
    text = "block = 'pre'\nepsilon = 0\n[given]\nresid_mid = [[1, 3]]\nw_up = [[1], [1]]\nw_down = [[1, 2]]\n"
    text += "[claimed]\nmlp_norm = [[-1, 1]]\nmlp.pre = [[0]]\nresid_post = [[1, 3]]\n"
    assert check(read(text)).worst is Verdict.right


def test_masks_may_be_combined_and_written_out() -> None:
    given = "[given]\nscores = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]\n[claimed]\n"
    both = 'mask = ["causal", { name = "padding", real = [false, true, true] }]\nscale = "none"\ndecimals = 1\n'
    told = "weights = [[0, 0, 0], [0, 1, 0], [0, 0.5, 0.5]]\n"
    assert check(read(both + given + told)).worst is Verdict.right
    written = "mask = [[0, 0, 0], [0, 1, 0], [0, 1, 1]]\nscale = 'none'\ndecimals = 1\n"
    assert check(read(written + given + told)).worst is Verdict.right


def test_parameter_tables_by_other_names_and_shapes() -> None:
    own = '[given]\npreset = "shakespeare"\nvocab_size = 109\n[claimed]\ntotal = 431104\n[claimed.rows]\n'
    rows = '"transformer.h.0.attn.c_attn.weight" = 49152\n"transformer.h.1.mlp.c_fc.bias" = 512\n'
    rows += '"blocks.0.attn_norm.bias" = 128\n"ln_f.weight" = 128\n'
    assert check(read(own + rows)).worst is Verdict.right
    listed = '[given.shapes]\n"w" = [3, 5]\n"b" = [5]\n[claimed]\ntotal = 20\n[claimed.rows]\n"w" = 15\n"b" = 5\n'
    assert check(read(listed)).worst is Verdict.right
    assert check(read(listed.replace("total = 20", "total = 15"))).first_wrong is not None


def test_heads_and_cells_of_an_example_are_chosen() -> None:
    example = find_example("life-is-awesome")
    steps = {step.name: step for step in walk_example(example, Choice(heads=(1,), query=1, key=0, column=1)).steps}
    [panel] = steps["weights"].panels
    assert panel.label == "head 2"
    assert panel.cell == (1, 0)
    assert round(panel.matrix[1][0], 3) == 0.330
    assert steps["q"].panels[0].cell == (1, 1)
    with pytest.raises(UsageError, match="--head 3: there are 2, counted from 1"):
        walk_example(example, Choice(heads=(2,)))
    with pytest.raises(UsageError, match="--query 4"):
        walk_example(example, Choice(query=3))
