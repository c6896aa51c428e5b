"""A map of names of the user's: any GPT in safetensors, checked by modules and formulas that know nothing of ours."""

from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from foreign import difference
from nanogpt import state
from notes_model import CONTEXT, HEADS, LAYERS, ROWS, WIDTH, NotesModel, large, notes_tensors
from torch import Tensor, nn

from tests.interop.conftest import by_hand
from vitral.core.errors import UsageError
from vitral.data import byte_tokenizer
from vitral.interop import import_model
from vitral.interop.rules import permuted
from vitral.runs import load_run

SIZE = WIDTH // HEADS
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
MODEL = f"""
[model]
context_length = {CONTEXT}
d_model = {WIDTH}
num_layers = {LAYERS}
num_heads = {HEADS}
"""
NOTES = """
norm = "pre"
feed_forward = "relu"

[names]
"token_embedding.weight" = "wte.weight"
"positions.weight" = "wpe.weight"
"blocks.{layer}.attn_norm" = "scale1.{layer}"
"blocks.{layer}.attn.in_proj.weight" = "MM.{layer}.in_proj_weight"
"blocks.{layer}.attn.in_proj.bias" = "MM.{layer}.in_proj_bias"
"blocks.{layer}.attn.out_proj.weight" = "MM.{layer}.out_proj_weight"
"blocks.{layer}.attn.out_proj.bias" = "MM.{layer}.out_proj_bias"
"blocks.{layer}.mlp_norm" = "scale2.{layer}"
"blocks.{layer}.mlp.up" = "FFN.{layer}.0"
"blocks.{layer}.mlp.down" = "FFN.{layer}.2"
"final_norm" = "scale3"
"head.weight" = "ln_f.weight"
"""
"""The model of the course notes: `MM`, and a head called `ln_f`."""


def write(folder: Path, tensors: dict[str, Tensor], names: str) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    safetensors.torch.save_file(
        {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors"
    )
    (folder / "tokenizer.json").write_text(byte_tokenizer().document)
    (folder / "names.toml").write_text(names)
    return folder / "model.safetensors", folder / "names.toml"


def logits(path: Path) -> Tensor:
    with torch.inference_mode():
        return load_run(path).model(torch.tensor([TOKENS]))[0]


ENCODER = """
norm = "post"
feed_forward = "gelu"
d_ff = 20
final_norm = true

[names]
"token_embedding" = "embed"
"positions.weight" = "pos"
"blocks.{layer}" = { like = "torch.nn.TransformerEncoderLayer", name = "encoder.layers.{layer}" }
"final_norm" = "encoder.norm"
"head.weight" = "out.weight"
"""


def test_blocks_of_torch(tmp_path: Path) -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 20, 0.0, "gelu", batch_first=True)
    encoder = large(nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False))
    embed, pos, out = torch.randn(ROWS, WIDTH), torch.randn(1, CONTEXT, WIDTH), torch.randn(ROWS, WIDTH)
    tensors = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    tensors |= {"embed.weight": embed, "pos": pos, "out.weight": out, "mask": torch.ones(CONTEXT, CONTEXT)}
    source, names = write(tmp_path / "encoder", tensors, 'ignored = ["mas*"]\n' + MODEL + ENCODER)
    run = import_model(source.parent, tmp_path / "run", names=names)
    with torch.inference_mode():
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
        expected = encoder((embed[TOKENS] + pos[0])[None], mask=mask, is_causal=True)[0] @ out.T
    assert difference(logits(run.path), expected) < 1e-5


HEADWISE = """
norm = "pre"
feed_forward = "gelu"
bias = { qkv = false }
tie_head = true

[names]
"token_embedding.weight" = "transformer.wte.weight"
"positions.weight" = "transformer.wpe.weight"
"blocks.{layer}.attn_norm" = "transformer.h.{layer}.ln_1"
"blocks.{layer}.mlp_norm" = "transformer.h.{layer}.ln_2"
"blocks.{layer}.attn.out_proj" = { name = "transformer.h.{layer}.attn.c_proj", transpose = true }
"blocks.{layer}.mlp.up" = { name = "transformer.h.{layer}.mlp.c_fc", transpose = true }
"blocks.{layer}.mlp.down" = { name = "transformer.h.{layer}.mlp.c_proj", transpose = true }
"final_norm" = "transformer.ln_f"
"head.weight" = "lm_head.weight"
"""
FORMS: dict[str, str] = {
    "separate": '["h.{layer}.q", "h.{layer}.k", "h.{layer}.v"]',
    "separate by head": '{ name = ["h.{layer}.q.{head}", "h.{layer}.k.{head}", "h.{layer}.v.{head}"] }',
    "separate in another order": '{ name = ["h.{layer}.k", "h.{layer}.q", "h.{layer}.v"], order = "kqv" }',
    "packed": '"h.{layer}.qkv"',
    "packed and transposed": '{ name = "h.{layer}.qkv", transpose = true }',
    "packed by block": '{ name = "h.{layer}.qkv", order = "vqk" }',
    "packed by head": '{ name = "h.{layer}.qkv", by = "head" }',
    "packed by head in another order": '{ name = "h.{layer}.qkv", by = "head", order = "kvq" }',
    "one for each head": '{ name = "h.{layer}.qkv.{head}", by = "head" }',
}


def attention(form: str, rows: dict[str, Tensor], at: str) -> dict[str, Tensor]:
    """The projections [h, d, D] of queries, keys and values as a form stores them."""
    flat = {letter: part.reshape(WIDTH, WIDTH) for letter, part in rows.items()}
    order = {"packed by block": "vqk", "packed by head in another order": "kvq"}.get(form, "qkv")
    if form == "separate by head":
        return {f"{at}.{letter}.{head}": part[head] for letter, part in rows.items() for head in range(HEADS)}
    if form.startswith("separate"):
        return {f"{at}.{letter}": part for letter, part in flat.items()}
    by_head = [torch.cat([rows[letter][head] for letter in order]) for head in range(HEADS)]
    if form == "one for each head":
        return {f"{at}.qkv.{head}": part for head, part in enumerate(by_head)}
    if "by head" in form:
        return {f"{at}.qkv": torch.cat(by_head)}
    whole = torch.cat([flat[letter] for letter in order])
    return {f"{at}.qkv": whole.T if "transposed" in form else whole}


@pytest.mark.parametrize("form", FORMS)
def test_queries_keys_and_values_in_any_form(form: str, tmp_path: Path) -> None:
    held = {name: part for name, part in state(ROWS, bias=True).items() if not name.endswith("attn.bias")}
    transposed = ("c_fc.weight", "c_proj.weight")
    given = {name: part.T if name.endswith(transposed) else part for name, part in held.items() if "c_attn" not in name}
    for layer in range(LAYERS):
        parts = held[f"transformer.h.{layer}.attn.c_attn.weight"].reshape(3, HEADS, SIZE, WIDTH)
        rows = dict(zip("qkv", parts, strict=True))
        given |= {f"{name}.weight": part for name, part in attention(form, rows, f"h.{layer}").items()}
    line = f'"blocks.{{layer}}.attn.in_proj" = {FORMS[form]}\n'
    source, names = write(tmp_path / "gpt", given, MODEL + HEADWISE + line)
    run = import_model(source, tmp_path / "run", names=names)
    expected = by_hand(held, TOKENS)
    assert difference(logits(run.path), expected) < 1e-5


@pytest.mark.parametrize("transpose", [False, True])
def test_rows_in_another_order_are_their_own_inverse(transpose: bool) -> None:
    ours = torch.arange(9 * 12.0).reshape(9, 12)
    rule = permuted("ours", {"one": 5, "other": 4}, torch.arange(9) * 2 % 9, transpose=transpose)
    assert rule.take(rule.export(ours)).equal(ours)


def changed(old: str, new: str) -> Callable[[str, dict[str, Tensor]], str]:
    def change(names: str, tensors: dict[str, Tensor]) -> str:
        assert old in names
        return names.replace(old, new)

    return change


def with_tensor(name: str, tensor: Tensor | None) -> Callable[[str, dict[str, Tensor]], str]:
    def change(names: str, tensors: dict[str, Tensor]) -> str:
        tensors.pop(name, None)
        tensors.update({} if tensor is None else {name: tensor})
        return names

    return change


BAD: dict[str, tuple[Callable[[str, dict[str, Tensor]], str], str]] = {
    "a leftover": (with_tensor("surplus.weight", torch.ones(2)), "surplus.weight"),
    "a gap": (with_tensor("scale3.bias", None), "scale3.bias"),
    "a number as embedding": (with_tensor("wte.weight", torch.tensor(1.0)), "wte.weight"),
    "a wrong shape of attention": (with_tensor("MM.1.in_proj_weight", torch.ones(9, 12)), "MM.1.in_proj_weight"),
    "a tensor not named": (changed('"final_norm" = "scale3"', ""), "final_norm"),
    "a name that is none": (changed('"final_norm"', '"last_norm"'), "last_norm"),
    "a layer too few": (changed("num_layers = 2", "num_layers = 1"), "FFN.1.0"),
    "a key of the model missing": (changed('feed_forward = "relu"', ""), "feed_forward"),
    "an unknown word for a place": (changed('"scale3"', '{ name = "scale3", turn = true }'), "turn"),
    "an order of a norm": (changed('"scale3"', '{ name = "scale3", order = "kqv" }'), "final_norm"),
    "a block like a norm": (changed('"scale3"', '{ name = "x", like = "torch.nn.MultiheadAttention" }'), "final_norm"),
    "another head than the embedding": (changed("[names]", "tie_head = true\n[names]"), "tie_head"),
    "no TOML": (changed("[names]", "[names"), "names.toml"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_map_that_does_not_fit_is_refused_in_one_line_with_the_name(case: str, tmp_path: Path) -> None:
    change, shown = BAD[case]
    tensors = notes_tensors(large(NotesModel()))
    source, names = write(tmp_path / "notes", tensors, change(MODEL + NOTES, tensors))
    with pytest.raises(UsageError) as refused:
        import_model(source, tmp_path / "runs" / "run", names=names)
    assert shown in str(refused.value)
    assert not (tmp_path / "runs").exists()


def test_other_files_are_refused(tmp_path: Path) -> None:
    tensors = notes_tensors(large(NotesModel()))
    source, names = write(tmp_path / "notes", tensors, MODEL + NOTES)
    torch.save(tensors, tmp_path / "model.pt")
    raw = source.read_bytes()
    for bad, given in ((tmp_path / "model.pt", names), (tmp_path / "no.safetensors", names), (source, tmp_path / "no")):
        with pytest.raises(UsageError):
            import_model(bad, tmp_path / "run", names=given)
    with pytest.raises(UsageError, match="--map"):
        import_model(source, tmp_path / "run")
    source.write_bytes(raw[:100])
    with pytest.raises(UsageError, match=r"model\.safetensors"):
        import_model(source, tmp_path / "run", names=names)
    assert not (tmp_path / "run").exists()
