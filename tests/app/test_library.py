"""The library from Python, as the README shows it."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitral
from vitral.app.arguments import opened
from vitral.core.config import assignment
from vitral.core.errors import UsageError
from vitral.model import count_parameters
from vitral.studies.plan import plan_study


def test_train_gives_a_run_that_load_gives_again(run: vitral.Run) -> None:
    again = vitral.load(run.path, "best")
    assert again.step == run.step
    assert again.generate("WREN", max_tokens=29, seed=3) == run.generate("WREN", max_tokens=29, seed=3)
    assert run.generate("WREN", max_tokens=0) == "WREN"
    pieces: list[str] = []
    assert len(vitral.generate(run, "WREN", max_tokens=31, seed=5, on_text=pieces.append)) == 0
    assert "".join(pieces) == run.generate("WREN", max_tokens=31, seed=5)


def test_cache_takes_texts_and_ids_and_names_in_any_form(run: vitral.Run) -> None:
    ids = run.tokenizer.encode("The light").tolist()
    wanted = run.trace("The light", "blocks.0.attn.hook_pattern")
    assert list(wanted) == ["blocks.0.attn.weights"]
    as_numbers = (ids, np.array(ids), list(np.array(ids)), torch.tensor(ids), np.array(ids, dtype=np.uint8))
    for given in (*as_numbers, ["The light"], [ids], torch.tensor([ids])):
        torch.testing.assert_close(run.cache(given, "blocks.0.attn.weights")["pattern", 0], wanted["pattern", 0])
    wrong: Any = [
        [1.5],
        np.array([1.5]),
        [[1.5]],
        torch.tensor([1.5]),
        torch.tensor(3),
        [True],
        [10**6],
        [-1],
        [],
        "a" * 14,
    ]
    for given in wrong:
        with pytest.raises(UsageError):
            run.cache(given)
    with pytest.raises(UsageError, match="did you mean"):
        run.cache("The", "blocks.0.attn.weight")
    several = run.cache(["The light", "The"], "logits", gradients=True)
    assert several.gradients["logits"].shape == several["logits"].shape == (2, 9, run.model.vocab_size)
    assert several.loss == pytest.approx(run.loss(["The light", "The"]))
    zero = [{"at": "blocks.1.hook_attn_out", "do": "zero"}]
    assert run.loss("The light", edits=zero) != run.loss("The light")


def test_hooks_reach_all_that_a_run_computes(run: vitral.Run) -> None:
    hooked = run.hooked({"blocks.*.attn.out": torch.zeros_like}).hooked({"blocks.*.mlp.out": torch.zeros_like})
    zeros = [{"at": f"blocks.{layer}.{part}.out", "do": "zero"} for layer in range(2) for part in ("attn", "mlp")]
    assert hooked.loss("The light") == pytest.approx(run.loss("The light", edits=zeros), abs=1e-6)
    assert run.loss("The light") != hooked.loss("The light")
    assert opened(hooked, dtype="float64").loss("The light") == pytest.approx(hooked.loss("The light"), abs=1e-5)
    assert hooked.generate("The", max_tokens=40) != run.generate("The", max_tokens=40)
    with pytest.raises(UsageError, match="mapping"):
        run.hooked([("blocks.0.attn.out", torch.zeros_like)])  # pyright: ignore[reportArgumentType]
    assert repr(run.cache("The", "blocks.0.attn.out")) == f"blocks.0.attn.out  [1, 3, {run.model.config.d_model}]"
    assert vitral.evaluate(hooked, copying=False).plain() != vitral.evaluate(run, copying=False).plain()
    for refused in (lambda: hooked.explain("The"), lambda: vitral.bundle(hooked), lambda: run.hooked({"emded": abs})):
        with pytest.raises(UsageError):
            refused()


def test_circuits_and_attribution_of_a_run(run: vitral.Run) -> None:
    assert run.qk(1, 2).shape == run.ov(1, 2).shape == (12, 12)
    logit = float(run.trace("The light", "logits")["logits"][0, -1, run.tokenizer.encode("s")[0]])
    parts = run.attribution("The€light", "s", replace=" ").records()
    assert sum(one["value"] for one in parts) == pytest.approx(logit, abs=1e-5)


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        (lambda run: run.trace("The light", ["blocks.0.attn.weight"]), r"did you mean 'blocks.\d.attn.weights'"),
        (lambda run: run.trace(None), "not None"),
        (lambda run: run.hooked({"embed": torch.Tensor.double}).loss("The"), "float64"),
    ],
)
def test_mistakes_are_one_line(run: vitral.Run, mistake, line: str) -> None:
    with pytest.raises(UsageError, match=line) as refused:
        mistake(run)
    assert "\n" not in str(refused.value)


def test_presets_are_whole_configurations(tmp_path: Path) -> None:
    for name, preset in vitral.presets().items():
        config = vitral.configure(name)
        assert type(config).parse(config.plain()) == config
        assert preset.description
    assert vitral.configure("shakespeare").training.optimizer.learning_rate == 3e-3
    (tmp_path / "mine.toml").write_text("[model]\nd_model = 64\n", encoding="utf-8")
    mine = vitral.configure(str(tmp_path / "mine.toml"), overrides=[{"model": {"num_heads": 8}}])
    assert (mine.model.d_model, mine.model.num_heads) == (64, 8)


def test_a_text_may_be_given_as_a_table(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes("não é assim\n".encode("cp1252") * 1800)
    table = {"source": str(tmp_path / "x.txt"), "encoding": "cp1252"}
    assert vitral.configure("fast", corpus=table).corpus.encoding == "cp1252"
    assert vitral.count("fast", corpus=table).vocab_size == 11  # ten characters and padding
    assert vitral.survey(table["source"], encoding="cp1252", split="tail").report.vocab_size == 11


def test_the_fast_preset_of_shakespeare_is_the_same_model() -> None:
    theirs, ours = vitral.configure("shakespeare").model, vitral.configure("shakespeare-fast").model
    differ = {"dropout": theirs.dropout, "initialisation": theirs.initialisation}
    assert ours.model_copy(update=differ) == theirs
    assert count_parameters(ours, 109) == 431_104
    assert count_parameters(vitral.configure("fast").model, 109) <= 431_104


def test_a_plan_is_written_as_the_command_that_gives_it() -> None:
    plan = plan_study(
        "no-attention",
        budget="quick",
        seeds=[3, 5],
        overrides=[{"model": {"norm": "post", "d_model": 64}, "training": {"clip_norm": 0.5}}],
    )
    words = shlex.split(plan.command)[3:]
    told = list(zip(words[::2], words[1::2], strict=True))
    assert ("--seeds", "3,5") in told
    settings = [assignment(word) for option, word in told if option == "--set"]
    again = plan_study("no-attention", budget="quick", seeds=[3, 5], overrides=settings)
    assert again == plan


def test_what_is_not_asked_for_stays_as_the_run_was_loaded(run: vitral.Run) -> None:
    loaded = vitral.load(run.path, "last", corpus="elsewhere.txt")
    assert opened(loaded) is loaded
    exact = opened(loaded, dtype="float64")
    assert (exact.which, exact.device, exact.dtype, exact.corpus) == ("last", "cpu", "float64", "elsewhere.txt")
    moved = opened(exact, corpus="moved.txt")
    assert (moved.which, moved.device, moved.dtype, moved.corpus) == ("last", "cpu", "float64", "moved.txt")
    assert next(moved.model.parameters()).dtype == torch.float64
    best = opened(moved, "best", device="cpu")
    assert (best.which, best.dtype, best.corpus) == ("best", "float64", "moved.txt")
    assert (opened(run.path).which, opened(run.path).dtype) == ("best", "float32")
