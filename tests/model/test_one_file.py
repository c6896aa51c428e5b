"""`docs/one_file.py`, the whole model in one file, is the model: a run loads into it and gives the same logits."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from vitral.runs.loading import load_run

FILE = Path(__file__).parents[2] / "docs" / "one_file.py"
PROMPT = "The lamp is out."


@pytest.fixture
def one_file() -> ModuleType:
    spec = importlib.util.spec_from_file_location("one_file", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_run_loads_into_it(one_file: ModuleType, tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tokenizer = one_file.load(tiny_run)
    text = PROMPT[:11]
    theirs = load_run(tiny_run)
    tokens = torch.from_numpy(theirs.tokenizer.encode(text))[None].long()
    assert tokenizer.encode(text).tolist() == tokens[0].tolist()
    traced = theirs.model.eval().trace(tokens)
    torch.testing.assert_close(model(tokens), traced["logits"], atol=1e-5, rtol=0)
    key, weight = one_file.explain(model, tokenizer, text)
    row = traced["blocks.0.attn.weights"][0, 0, -1]
    assert (key, round(weight, 4)) == (int(row.argmax()), round(float(row.max()), 4))
    printed = [float(number) for number in re.findall(r"= (-?[0-9.]+)$", capsys.readouterr().out, re.MULTILINE)]
    scores = traced["blocks.0.attn.scores"][0, 0, -1, key], traced["blocks.0.attn.scaled"][0, 0, -1, key], row[key]
    assert printed == pytest.approx([float(number) for number in scores], abs=6e-4)


def test_it_learns_and_writes(one_file: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(1)
    tokenizer = one_file.Tokenizer("ab\n")
    model = one_file.Transformer(4, context=7, d_model=12, heads=3, layers=1)
    one_file.train(model, tokenizer.encode("ab\n" * 101), steps=60)
    assert one_file.sample(model, tokenizer, "a", length=20, temperature=0.1) == "ab\n" * 7
    assert "nats" in capsys.readouterr().out


def test_it_fits_on_a_few_screens() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 200
