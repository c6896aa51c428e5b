"""The row against nanoGPT's own code: its data, its pace, and its loss, with a stand-in for its checkout."""

import json
import math
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from benchmarks.options import LeftOut, Options
from benchmarks.peers import NANOGPT, nanogpt
from benchmarks.peers.nanogpt_training import (
    CONFIG,
    CPU_SETTINGS,
    EVALUATIONS,
    Characters,
    Pace,
    characters_of,
    loss_of,
    pace_of,
    require_checkout,
    train,
)
from benchmarks.rows import nanogpt_minute
from vitral.data import BPEConfig, ByteConfig, Corpus, CorpusConfig, TokenizerConfig, prepare

TEXT = "Não é só um anão; é o avô.\nO que há, há.\n" * 900

MODEL = """
from dataclasses import dataclass
import torch

@dataclass
class GPTConfig:
    block_size: int = 0
    vocab_size: int = 0

class GPT(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, idx, targets):
        return self.bias.expand(*idx.shape, -1), None
"""

TRAIN = """
import json, pathlib, pickle, sys
import torch
from model import GPT, GPTConfig

given = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--"))
vocab = pickle.loads((pathlib.Path(given["dataset"]) / "meta.pkl").read_bytes())["vocab_size"]
out = pathlib.Path(given["out_dir"])
out.mkdir()
(out / "given.json").write_text(json.dumps(given))
arguments = {"block_size": int(given["block_size"]), "vocab_size": vocab}
model = GPT(GPTConfig(**arguments))
for step in range(int(given["max_iters"]) + 1):
    print(f"iter {step}: loss 3.0000, time {500.0 if step == 0 else 2.0:.2f}ms, mfu 0.00%")
torch.save({"model": model.state_dict(), "model_args": arguments, "config": given}, out / "ckpt.pt")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the files and the output of nanoGPT, and a model that finds all characters equally likely."""
    folder = tmp_path / "nanoGPT"
    for name, text in (("model.py", MODEL), ("train.py", TRAIN), ("configurator.py", ""), (CONFIG, "")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def characters(tokenizer: TokenizerConfig | None = None) -> Characters:
    raw = TEXT.encode()
    config = CorpusConfig() if tokenizer is None else CorpusConfig(tokenizer=tokenizer)
    return characters_of(prepare(config, corpus=Corpus("text", TEXT, len(raw), "0" * 64)))


@pytest.mark.parametrize("tokenizer", [None, ByteConfig(), BPEConfig(vocab_size=300)])
def test_its_characters_are_those_of_the_run_whatever_its_tokenizer(tokenizer: TokenizerConfig | None) -> None:
    measured = characters(tokenizer)
    assert measured.alphabet == "".join(sorted(set(TEXT)))
    parts = {
        name: "".join(measured.alphabet[token] for token in split.tokens) for name, split in measured.splits.items()
    }
    assert sum(map(len, parts.values())) == len(TEXT)
    for name, split in measured.splits.items():
        for begin, end in split.segments.tolist():
            assert parts[name][begin:end] in TEXT


def test_it_reads_our_splits_as_its_own_files(tmp_path: Path) -> None:
    measured = characters()
    measured.write(tmp_path / "data")
    read = {name: np.fromfile(tmp_path / "data" / f"{name}.bin", dtype=np.uint16) for name in ("train", "val")}
    np.testing.assert_array_equal(read["train"], measured.splits["train"].tokens)
    np.testing.assert_array_equal(read["val"], measured.splits["validation"].tokens)
    meta = pickle.loads((tmp_path / "data" / "meta.pkl").read_bytes())
    assert meta["vocab_size"] == len(set(TEXT))
    assert [meta["itos"][meta["stoi"][character]] for character in measured.alphabet] == list(measured.alphabet)


@pytest.mark.merge
def test_it_trains_in_its_folder_with_its_settings_and_its_loss_is_of_our_test_split(
    checkout: Path, tmp_path: Path
) -> None:
    measured, before = characters(), sorted(checkout.rglob("*"))
    measured.write(tmp_path / "data")
    trained = train(require_checkout(checkout), tmp_path / "data", tmp_path / "out", 5 * EVALUATIONS, dict(os.environ))
    given = json.loads((tmp_path / "out" / "given.json").read_text(encoding="utf-8"))
    assert {name: given[name] for name in CPU_SETTINGS} == {name: str(value) for name, value in CPU_SETTINGS.items()}
    assert given["max_iters"] == given["lr_decay_iters"] == str(5 * EVALUATIONS)
    assert given["eval_interval"] == "5"  # so the last model is evaluated, and saved
    assert sorted(checkout.rglob("*")) == before
    pace = pace_of(trained.printed, trained.seconds)
    assert (pace.evaluation, pace.step) == (0.498, 0.002)
    loss = loss_of(nanogpt.load(checkout), trained.out, measured.splits["test"])
    assert loss == pytest.approx(math.log(len(set(TEXT))), rel=1e-6)


def test_the_steps_fill_the_time_and_the_last_one_is_evaluated() -> None:
    pace = Pace(fixed=3.0, evaluation=0.5, step=0.02)
    steps = pace.steps_in(60)
    assert steps % EVALUATIONS == 0
    assert 60 - EVALUATIONS * 0.02 < 3.0 + (EVALUATIONS + 1) * 0.5 + steps * 0.02 <= 60
    assert pace.steps_in(1) == EVALUATIONS


def test_a_folder_that_is_no_checkout_is_named(tmp_path: Path) -> None:
    with pytest.raises(LeftOut, match="--nanogpt"):
        require_checkout(None)
    (tmp_path / "train.py").write_text("", encoding="utf-8")
    with pytest.raises(LeftOut, match=r"model\.py"):
        require_checkout(tmp_path)


@pytest.mark.full
@pytest.mark.skipif("VITRAL_NANOGPT" not in os.environ, reason="VITRAL_NANOGPT names no checkout of nanoGPT")
def test_the_row_runs_with_nanogpt_itself() -> None:
    options = Options(quick=True, nanogpt=Path(os.environ["VITRAL_NANOGPT"]), texts=("sample",))
    (measured,) = nanogpt_minute.measure(["nanogpt-minute"], options)
    assert [one.name for one in measured.measurements] == ["Vitral", NANOGPT]
