"""GGUF files: a reader of our own in NumPy computes the same logits and ids; llama.cpp too, where it is installed."""

import importlib
import json
import random
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign import of_form, run_of
from variants import VARIANTS, made

from vitral.core.errors import UsageError
from vitral.data import Tokenizer, bpe_tokenizer, byte_tokenizer, char_tokenizer, declaring
from vitral.data.tokenizers import file_tokenizer
from vitral.interop import export_run
from vitral.interop.rewrites import Weighted
from vitral.interop.rules import exported, imported
from vitral.interop.targets import gguf, llama_cpp
from vitral.model import ModelConfig, Transformer

pytestmark = [pytest.mark.merge, pytest.mark.skipif(find_spec("gguf") is None, reason="gguf is not installed")]

ROTARY: dict[str, Any] = {"norm_type": "rmsnorm", "feed_forward": "swiglu", "d_head": 6, "bias": False}
NEOX: dict[str, Any] = {"d_model": 12, "positions": "rotary"}
GGUF: dict[str, dict[str, Any]] = {
    "learned positions": {"feed_forward": "gelu_tanh"},
    "tied, no biases, sines": {"feed_forward": "gelu_tanh", "tie_head": True, "bias": False, "positions": "sinusoidal"},
    "shared keys repeated, scale folded": {
        **{"feed_forward": "gelu_tanh", "num_heads": 5, "num_kv_heads": 1},
        "attention": {"scale": "learned-per-head"},
    },
    "rotary": {**ROTARY, "positions": "rotary", "tie_head": True},
    "shared keys, every bias": {
        **{**ROTARY, "bias": True, "d_head": 10, "num_heads": 6, "num_kv_heads": 2, "norm_epsilon": 1e-3},
        "positions": {"name": "rotary", "base": 100.0},
    },
    "interleaved, linear scaling": {
        **{**ROTARY, "bias": {"qkv": True, "output": False, "feed_forward": False}},
        "positions": {
            **{"name": "rotary", "base": 50.0, "pairing": "interleaved"},
            "scaling": {"name": "linear", "factor": 3.0},
        },
    },
    "as in Llama 3": {
        **ROTARY,
        "positions": {
            **{"name": "rotary", "base": 50.0},
            "scaling": {"name": "llama3", "factor": 3.0, "original_context_length": 17},
        },
    },
    "side by side, a part of each head, scaled": {
        **{"feed_forward": "gelu_tanh", "num_heads": 2, "d_model": 20, "parallel": True, "norm_epsilon": 1e-3},
        "positions": {
            **{"name": "rotary", "base": 50.0, "fraction": 0.6},
            "scaling": {"name": "linear", "factor": 3.0},
        },
    },
    "rotary with LayerNorm, tied, shared keys, no biases": {
        **{"feed_forward": "gelu_tanh", "num_heads": 6, "num_kv_heads": 2, "d_model": 24, "positions": "rotary"},
        **{"tie_head": True, "bias": False},
    },
}
"""Models that a GGUF file expresses exactly; its activation is GELU by tanh."""

TEXT = "Don't: “é” 日本, ß; it's 1 234 a  b ?\n\n .x <PAD> <|end|> ção"
CHARACTERS = char_tokenizer("".join(sorted(set(TEXT))))
PAIRS = bpe_tokenizer(((116, 104), (256, 101), (32, 97), (195, 169), (228, 189), (97, 32)))
TOKENIZERS: dict[str, Tokenizer] = {
    "characters": CHARACTERS,
    "bytes": byte_tokenizer(),
    "byte pairs": PAIRS,
    "special tokens among characters": declaring(CHARACTERS, {"<|end|>": 3, "<s>": 7}),
    "special tokens after byte pairs": declaring(PAIRS, {"<|endoftext|>": 262}),
}


def small(vocab_size: int) -> Transformer:
    return Transformer(ModelConfig(context_length=16, d_model=8, num_heads=2, num_layers=1), vocab_size).eval()


def file_of(folder: Path, model: Transformer, tokenizer: Tokenizer | None = None, **config: Any) -> Path:
    export_run(run_of(model, folder / "run", tokenizer, **config), folder / "out", to="gguf", proof=False)
    return folder / "out" / "model.gguf"


def reader_of(path: Path) -> Any:
    return importlib.import_module("gguf_model").GgufModel(path)


def strings(alphabet: str) -> Iterator[str]:
    yield from (TEXT, "a", " a", "  ", "\n", "<PAD>", "<|end|>")
    chosen = random.Random(5)
    for _ in range(60):
        yield "".join(chosen.choice(alphabet) for _ in range(chosen.randrange(1, 40)))


@pytest.mark.parametrize("variant", GGUF)
def test_a_reader_of_our_own_computes_the_same_logits_from_the_file(variant: str, tmp_path: Path) -> None:
    model = made(GGUF[variant])
    ids = [1, 4, 2, 7, 3, 3, 0, 5, 6, 1, 2, 8, 9]
    found = reader_of(file_of(tmp_path, model)).logits(ids)
    with torch.inference_mode():
        expected = model(torch.tensor([ids]))[0].double().numpy()
    assert np.abs(found - expected).max() / np.abs(expected).max() < 1e-5
    form, said = gguf.first(gguf.FORMS, Weighted(model.config, model.state_dict()))
    rules = form.rules(said.config)
    back = imported(rules, exported(rules, said.weights), "here")
    assert all(back[name].equal(tensor) for name, tensor in said.weights.items())


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_file_gives_the_same_ids_and_texts(name: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[name]
    found = reader_of(file_of(tmp_path, small(tokenizer.vocab_size), tokenizer))
    assert len(found.texts) == tokenizer.vocab_size == len(set(found.texts))
    for text in (TEXT, "the path, a b", "aa a"):
        if name.endswith("characters") and not set(text) <= set(TEXT):
            continue
        ids = tokenizer.encode(text).tolist()
        assert found.encode(text) == ids
        assert found.decode(ids) == text


def test_an_imported_vocabulary_of_characters_keeps_its_ids(tmp_path: Path) -> None:
    from tokenizers import Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Engine

    engine = Engine(models.WordLevel({character: at for at, character in enumerate("zé\n a日")}))
    engine.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    engine.decoder = decoders.Fuse()
    tokenizer = file_tokenizer(engine.to_str(), 8, 0)
    found = reader_of(file_of(tmp_path, small(8), tokenizer))
    assert found.encode("aé\n日 z") == tokenizer.encode("aé\n日 z").tolist() == [4, 1, 2, 5, 3, 0]
    assert found.decode([4, 1, 2, 5, 3, 0]) == "aé\n日 z"
    assert found.data["tokenizer.ggml.eos_token_id"] == 6  # an id without a character


def test_nothing_ends_a_text_that_a_text_may_contain(tmp_path: Path) -> None:
    def ends(name: str, tokenizer: Tokenizer, **config: Any) -> tuple[int, int, bool]:
        data = reader_of(file_of(tmp_path / name, small(tokenizer.vocab_size), tokenizer, **config)).data
        assert not data["tokenizer.ggml.add_eos_token"]
        return tuple(data[f"tokenizer.ggml.{key}"] for key in ("bos_token_id", "eos_token_id", "add_bos_token"))

    assert ends("characters", CHARACTERS) == (0, 0, False)
    assert ends("bytes", byte_tokenizer()) == (255, 255, False)
    assert ends("imported", byte_tokenizer(), eos_token_id=[3, 4]) == (3, 3, False)
    assert ends("both", byte_tokenizer(), eos_token_id=3, bos_token_id=5) == (5, 3, False)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    **{name: (VARIANTS[name], "gguf") for name in ("post", "no residual", "lstm", "adaptive", "alibi", "no layer")},
    "squared relu": ({**NEOX, "feed_forward": "squared_relu"}, "feed_forward"),
    "interleaved": ({**NEOX, "positions": {"name": "rotary", "pairing": "interleaved"}}, r"positions\.pairing"),
    "scaled": (
        {**NEOX, "positions": {"name": "rotary", "scaling": GGUF["as in Llama 3"]["positions"]["scaling"]}},
        r"positions\.scaling",
    ),
    "window": (
        {**ROTARY, "positions": "rotary", "attention": {"mask": {"name": "window", "size": 3}}},
        r"attention\.mask",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_llama_cpp_has_not_is_refused_with_the_reason_and_nothing_is_left(
    name: str, tmp_path: Path
) -> None:
    parts, key = REFUSED[name]
    run = run_of(made(parts), tmp_path / "run")
    with pytest.raises(UsageError, match=key):
        export_run(run, tmp_path / "out", to="gguf", proof=False)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def answered_by(monkeypatch: pytest.MonkeyPatch, *command: str) -> tuple[str, list[str]]:
    binding = "1.0", [sys.executable, *command]
    monkeypatch.setattr(llama_cpp, "require_binding", lambda: binding)
    return binding


@pytest.mark.parametrize("by", ["a reader of our own", "llama.cpp"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt-neox"])
def test_the_proof_compares_ids_text_logits_and_the_continuation(
    name: str, by: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "llama.cpp":
        used = request.getfixturevalue("binding")
    else:
        used = answered_by(monkeypatch, str(Path(__file__).parents[1] / "helpers" / "gguf_model.py"))
    run = run_of(of_form(name), tmp_path / "run", byte_tokenizer())
    export = export_run(run, tmp_path / "out", to="gguf")
    assert {path.name for path in export.path.iterdir()} == {"model.gguf", "Modelfile", "PROOF.json", "README.md"}
    proof = json.loads((export.path / "PROOF.json").read_text())
    is_by_tanh = run.model.config.feed_forward != "gelu"
    # llama.cpp's cache and its table of GELU have half precision.
    assert proof["relative_difference"] < (0.01 if by == "llama.cpp" else 1e-5 if is_by_tanh else 1e-3)
    assert proof["equal_greedy_text"]
    assert all(prompt["equal_ids"] and prompt["equal_decoded"] for prompt in proof["prompts"])
    assert proof["versions"]["node-llama-cpp"] == used[0]
    modelfile = (export.path / "Modelfile").read_text()
    assert "FROM ./model.gguf" in modelfile
    assert "num_ctx 16" in modelfile


ANSWERS = "import sys, json; [print(json.dumps({answer}), flush=True) for line in sys.stdin]"


@pytest.mark.parametrize(
    "command",
    [
        ("-c", "import os; os.abort()"),
        ("-c", "print('not JSON', flush=True); input()"),
        ("-c", ANSWERS.format(answer="{'error': 'no memory'}")),
        ("-c", ANSWERS.format(answer="{'ready': True, 'ids': [1]}")),
        ("nowhere.py",),
    ],
)
def test_where_llama_cpp_ends_or_answers_otherwise_one_line_says_it_and_nothing_is_left(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered_by(monkeypatch, *command)
    run = run_of(made("pre"), tmp_path / "run")
    with pytest.raises(UsageError):
        export_run(run, tmp_path / "out", to="gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_without_a_binding_a_line_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(llama_cpp.FOLDER_KEY, str(tmp_path))
    run = run_of(made("pre"), tmp_path / "run")
    with pytest.raises(UsageError, match="node-llama-cpp"):
        export_run(run, tmp_path / "out", to="gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# llama.cpp itself.


@pytest.fixture(scope="session")
def binding() -> tuple[str, list[str]]:
    """The binding of llama.cpp."""
    try:
        return llama_cpp.require_binding()
    except UsageError:
        pytest.skip("node-llama-cpp is not installed (make llama)")


@pytest.fixture
def in_llama_cpp(binding: tuple[str, list[str]], tmp_path: Path) -> Iterator[Callable[[Tokenizer], Any]]:
    """Opens an export of a small model with a tokenizer."""
    closed = []

    def opens(tokenizer: Tokenizer) -> Any:
        found = llama_cpp.opened(file_of(tmp_path, small(tokenizer.vocab_size), tokenizer), 16)
        closed.append(found.close)
        return found

    yield opens
    for close in closed:
        close()


@pytest.mark.parametrize("name", [name for name in TOKENIZERS if name.startswith("special")])
def test_llama_cpp_gives_the_same_ids(name: str, in_llama_cpp: Callable[[Tokenizer], Any]) -> None:
    tokenizer = TOKENIZERS[name]
    found = in_llama_cpp(tokenizer)
    more = "" if "characters" in name else "\u200b٣½Ⅷ\u3000\xa0\t\r\x85\u2028ǅ한\u0301\ufffd\U0010ffff\x00"
    for text in strings(TEXT + more):
        ids = tokenizer.encode(text).tolist()
        assert found.ids(text) == ids
        assert found.text(ids) == text
    assert found.ids("a☃b時") is not None  # it goes on
    assert found.greedy([1], 3)


def engine_of(kind: str) -> Any:
    """A tokenizer as GPT-2 or SmolLM have it."""
    from tokenizers import Tokenizer as Engine
    from tokenizers import decoders, models, pre_tokenizers, trainers

    engine = Engine(models.BPE())
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    engine.pre_tokenizer = pre_tokenizers.Sequence([digits, letters]) if kind == "smollm" else letters
    engine.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|endoftext|>", "<|im_start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        max_token_length=16,
    )
    engine.train_from_iterator([TEXT, "the cat and the hat, 1234 then 55"] * 4, trainer)
    return engine


@pytest.mark.parametrize("change", ["NFC", "words", "no merges"])
def test_a_tokenizer_that_llama_cpp_has_not_is_refused(change: str, tmp_path: Path) -> None:
    document = json.loads(engine_of("gpt2").to_str())
    if change == "NFC":
        document["normalizer"] = {"type": "NFC"}
    elif change == "words":
        document["pre_tokenizer"] = {"type": "Whitespace"}
    else:
        document["model"] |= {"merges": [], "vocab": {"a": 0, "b": 1, "<|endoftext|>": 2, "<|im_start|>": 3}}
        document["added_tokens"] = []
    tokenizer = file_tokenizer(json.dumps(document), 420, 0)
    with pytest.raises(UsageError, match=r"llama\.cpp has no tokenizer"):
        export_run(run_of(small(420), tmp_path / "run", tokenizer), tmp_path / "out", to="gguf", proof=False)
    assert not (tmp_path / "out").exists()
