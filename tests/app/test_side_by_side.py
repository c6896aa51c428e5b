"""Runs side by side: what may be compared, and the differences, against what the runs measure alone."""

import json
import math
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign import run_of
from small_runs import small_config

import vitral
from vitral.compare import BITS, NATS, RunComparison
from vitral.compare.side_by_side import related
from vitral.core.config import merge
from vitral.core.errors import UsageError, VitralError
from vitral.core.language import in_language
from vitral.evaluation import SplitLoss
from vitral.evaluation.measures import Measures
from vitral.page import page_of
from vitral.report.side_by_side import (
    _less,
    finding,
    lacking_samples,
    relation_text,
    write_of,
)
from vitral.runs import load_run
from vitral.training import RunConfig, train

WORDS = ("the", "cat", "saw", "a", "bird", "and", "sang")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of the same text and of another one: base, wider, slower (same batches), other tokens, another text."""
    top = tmp_path_factory.mktemp("compared")
    for name, step in (("words", 5), ("others", 3)):
        text = " ".join(WORDS[(n * n + n // step) % 7] for n in range(3000))
        (top / f"{name}.txt").write_text(text, encoding="utf-8")
    base = {"training": {"steps": 12, "evaluate_every": 4, "batch_size": 5}}
    for name, changes in {
        "base": {},
        "wider": {"model": {"d_model": 12, "context_length": 16}},
        "slower": {"training": {"optimizer": {"learning_rate": 1e-4}}},
        "bytepairs": {"corpus": {"tokenizer": {"name": "bpe", "vocab_size": 280}}},
        "others": {"corpus": {"source": str(top / "others.txt")}},
        "nanogpt": {"corpus": {"split": "nanogpt"}},
        "blanks": {"training": {"objective": "masked"}, "model": {"attention": {"mask": "bidirectional"}}},
    }.items():
        train(small_config(top / "words.txt", **merge(base, changes)), top / "runs" / name)
    return top


def compared(folder: Path, *names: str, **options: Any) -> RunComparison:
    return vitral.compare(*(folder / "runs" / name for name in names), max_tokens=10, **options)


def _measured(run: Path) -> SplitLoss:
    measures = vitral.evaluate(run, copying=False)
    assert isinstance(measures, Measures)
    return measures.splits["test"]


def test_the_same_tokens_are_compared_in_nats_whatever_the_context(folder: Path) -> None:
    found = compared(folder, "base", "wider")
    (one,) = found.relations
    assert (one.run, one.against, one.comparable) == ("wider", "base", NATS)
    assert (one.same_text, one.same_test, one.same_tokens, one.same_task) == (True, True, True, True)
    losses = [_measured(folder / "runs" / name) for name in ("wider", "base")]
    assert one.difference is not None
    assert one.difference.difference == pytest.approx(losses[0].loss - losses[1].loss, rel=1e-4)
    assert one.difference.targets == losses[0].num_targets == losses[1].num_targets
    shown = [run.loss.loss for run in found.runs if run.loss is not None]
    assert shown == pytest.approx([losses[1].loss, losses[0].loss], rel=1e-6)
    better = replace(one, difference=replace(one.difference, difference=-0.5, low=-0.7, high=-0.3))
    assert [number in relation_text(better) for number in ("0.5000", "0.3000 to 0.7000")] == [True, True]
    wider, base = (load_run(folder / "runs" / name) for name in ("wider", "base"))
    assert related(wider, base)["difference"] == asdict(one.difference)


def test_equal_batches_are_known_by_their_hash(folder: Path) -> None:
    found = compared(folder, "base", "slower", "wider", "others")
    assert found.relations[0].batches == "same"
    assert (found.relations[1].batches, found.relations[1].batches_differ) == ("other", ("context_length",))
    # The intervals of several differences hold together.
    assert [one.difference.confidence for one in found.relations if one.difference] == [0.975, 0.975]


def test_other_tokens_are_compared_in_bits_per_character(folder: Path) -> None:
    (one,) = compared(folder, "base", "bytepairs").relations
    assert (one.comparable, one.same_test, one.same_tokens) == (BITS, True, False)
    losses = [_measured(folder / "runs" / name) for name in ("bytepairs", "base")]
    assert one.difference is not None
    assert one.difference.targets is None
    bits = [loss.bits_per_character for loss in losses]
    assert one.difference.difference == pytest.approx(bits[0] - bits[1], rel=1e-4)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("others", (False, False, True)),
        ("nanogpt", (True, False, True)),
        ("blanks", (True, True, False)),
    ],
)
def test_what_cannot_be_compared_is_not(folder: Path, name: str, facts: tuple[bool, bool, bool]) -> None:
    (one,) = compared(folder, "base", name).relations
    assert (one.same_text, one.same_test, one.same_task) == facts
    assert (one.comparable, one.difference) == ("nothing", None)


def test_each_run_is_compared_with_the_first_that_it_can_be_compared_with(folder: Path) -> None:
    found = compared(folder, "others", "bytepairs", "base", "wider", "blanks")
    assert [(one.run, one.against, one.comparable) for one in found.relations] == [
        ("bytepairs", "others", "nothing"),
        ("base", "bytepairs", BITS),
        ("wider", "base", NATS),
        ("blanks", "others", "nothing"),
    ]


def test_a_copy_differs_by_nothing(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "runs" / "base", tmp_path / "copy" / "base")
    found = vitral.compare(folder / "runs" / "base", tmp_path / "copy" / "base", max_tokens=5)
    assert [run.name for run in found.runs] == ["runs/base", "copy/base"]
    (one,) = found.relations
    assert one.batches == "same"
    assert one.difference is not None
    assert (one.difference.difference, one.difference.low, one.difference.high) == (0.0, 0.0, 0.0)
    assert not one.difference.excludes_zero
    assert found.changed == {}


def test_samples_are_those_of_each_run_alone(folder: Path) -> None:
    found = compared(folder, "base", "wider", prompt="the ", seed=3, losses=False)
    for run in found.runs:
        alone = vitral.load(run.summary.path).generate("the ", max_tokens=10, seed=3, temperature=0.8)
        assert run.sample == alone


def test_the_page_the_tables_and_the_data_say_the_same(folder: Path, tmp_path: Path) -> None:
    files = [path for path in (folder / "runs").rglob("*") if path.is_file()]
    before = {path: path.stat().st_mtime_ns for path in files}
    found = compared(folder, "base", "wider", "bytepairs", "others", prompt="the")
    assert {path: path.stat().st_mtime_ns for path in files} == before
    page = write_of(found, tmp_path / "out").read_text(encoding="utf-8")
    names = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {"comparison.md", "comparison.json", "runs.csv", "runs.tex", "figures/curves-by-step-1.pdf"} <= names
    plain = json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))
    assert plain == json.loads(json.dumps(found.plain()))
    for run in found.runs:
        assert run.name in page
        assert run.loss is not None
        assert f"{run.loss.loss:.4f}" in page
        assert f"{run.loss.loss:.4f}" in str(found)
    data = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.suffix in (".csv", ".json")}
    with in_language("pt"):
        assert json.loads(json.dumps(found.plain())) == plain
        write_of(found, tmp_path / "pt")
        assert {name: (tmp_path / "pt" / name).read_bytes() for name in data} == data
        assert "lado a lado" in str(found)
    assert "&lt;svg" in found._repr_html_()


def test_which_run_was_trained_less_is_said_of_whole_trainings_only(folder: Path, tmp_path: Path) -> None:
    base = folder / "runs" / "base"  # of 12 steps
    config = load_run(base).config

    def less(change: dict[str, Any], **how: Any) -> int:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        train(RunConfig.parse(merge(config, {"training": change})), tmp_path / "run", **how)
        return len(_less(vitral.compare(base, tmp_path / "run", losses=False, max_tokens=1)))

    assert [less({"steps": steps, "evaluate_every": 3}) for steps in (3, 12)] == [1, 0]
    assert less({"steps": 3, "evaluate_every": 3}, init_from=base) == 0
    run_of(load_run(base).model, tmp_path / "imported", load_run(base).tokenizer)
    assert not _less(vitral.compare(base, tmp_path / "imported", losses=False, max_tokens=1))


@pytest.mark.parametrize("names", [(), ("base",), ("base", "base"), ("base", "nowhere"), ("base", "empty")])
def test_fewer_than_two_runs_are_refused_in_one_line(folder: Path, names: tuple[str, ...]) -> None:
    (folder / "runs" / "empty").mkdir(exist_ok=True)
    with pytest.raises(UsageError):
        compared(folder, *names)


def test_a_text_that_is_lost_is_told_and_can_be_given(folder: Path) -> None:
    moved = (folder / "words.txt").rename(folder / "moved.txt")
    try:
        lost = compared(folder, "base", "wider", prompt="日")
        given = compared(folder, "base", "others", "wider", corpus=moved)
        loaded = [vitral.load(folder / "runs" / name, corpus=moved) for name in ("base", "wider")]
        kept = vitral.compare(*loaded, max_tokens=1)
    finally:
        moved.rename(folder / "words.txt")
    for run in lost.runs:  # loss and sample each have their reason
        assert run.loss is None
        assert "words.txt" in run.missing
        assert "日" in run.missing_sample
        assert (run.plain()["missing"], run.plain()["missing_sample"]) == (run.missing, run.missing_sample)
    assert "words.txt" in lost.relations[0].why
    assert "was not found" in str(lost)
    assert len(lacking_samples(lost)) == 2
    assert "日" in lost._repr_html_()
    for found in (given, kept):
        assert all(run.loss is not None and math.isfinite(run.loss.loss) for run in found.runs)


def test_two_runs_of_a_page_have_texts_of_their_own(folder: Path, tmp_path: Path) -> None:
    texts = [str(shutil.copy(folder / f"{name}.txt", tmp_path)) for name in ("others", "words")]
    runs = {name: load_run(shutil.copytree(folder / "runs" / name, tmp_path / name)) for name in ("base", "others")}
    (runs["base"].folder.path / "metrics.jsonl").write_bytes(b"")
    content = page_of(runs, texts, ablated=False)
    assert content.beside is not None
    assert [one.about["text"]["name"] for one in (content, content.beside)] == ["words.txt", "others.txt"]
    with pytest.raises(UsageError, match="runs"):
        page_of(runs, [str(tmp_path / "runs")])


def test_runs_of_a_folder_stand_by_name_whatever_their_losses(folder: Path, tmp_path: Path) -> None:
    """A reference that is chosen by the losses compared makes the intervals too narrow."""
    for name, source in (("1", "slower"), ("2", "base"), ("3", "wider")):
        shutil.copytree(folder / "runs" / source, tmp_path / name)
    found = vitral.compare(tmp_path, max_tokens=1)
    losses = [run.loss.loss for run in found.runs if run.loss is not None]
    assert losses[0] == max(losses)
    assert [(one.run, one.against) for one in found.relations] == [("2", "1"), ("3", "1")]


def test_only_losses_in_one_unit_have_common_curves(folder: Path, tmp_path: Path) -> None:
    def drawn(found: RunComparison, name: str) -> set[str]:
        write_of(found, tmp_path / name)
        return {path.stem for path in (tmp_path / name).rglob("curves-*")}

    assert drawn(compared(folder, "base", "bytepairs", losses=False), "without") == set()
    three = drawn(compared(folder, "base", "bytepairs", "others", losses=False), "three")
    assert three
    assert all(name.endswith("-2") for name in three)
    found = compared(folder, "base", "bytepairs", "wider")
    lost = replace(found, runs=(replace(found.runs[0], loss=None), *found.runs[1:]))
    assert drawn(lost, "two of three") >= {"curves-by-step"}


def test_damaged_runs_of_a_folder_are_left_out_and_damaged_ones_that_are_named_refused(
    folder: Path, tmp_path: Path
) -> None:
    for name in ("base", "wider", "slower", "others"):
        shutil.copytree(folder / "runs" / name, tmp_path / name)
    for weights in (tmp_path / "slower").rglob("model.safetensors"):
        content = weights.read_bytes()
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (tmp_path / "others" / "tokenizer.json").unlink()
    found = vitral.compare(tmp_path, tmp_path / "base", max_tokens=1)
    assert [run.name for run in found.runs] == ["base", "wider"]
    assert all(any(name in note for note in found.notes) for name in ("others", "slower"))
    with in_language("pt"):
        assert vitral.compare(tmp_path, max_tokens=1).notes == found.notes
        assert not [note for note in found.notes if note in str(found)]
    for name in ("slower", "others"):
        with pytest.raises(VitralError, match=name):
            vitral.compare(tmp_path, tmp_path / name, max_tokens=1)
    shutil.rmtree(tmp_path / "wider")
    with pytest.raises(VitralError, match=r"slower|others"):
        vitral.compare(tmp_path, max_tokens=1)


def test_parts_of_a_long_text_are_not_compared_in_other_tokens(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vitral.evaluation.losses.FINAL_TOKENS", 500)
    found = compared(folder, "base", "bytepairs", "wider")
    assert not found.runs[0].whole_test_split
    assert [(one.comparable, one.difference is None) for one in found.relations] == [("nothing", True), (NATS, False)]
    lowest = min(run.loss.bits_per_character for run in found.runs if run.loss is not None)
    assert f"{lowest:.3f}" not in finding(found)
    difference = found.relations[1].difference
    assert difference is not None
    assert difference.confidence == pytest.approx(0.95)  # of one difference
    write_of(found, tmp_path / "out")


def test_a_difference_that_is_not_finite_has_its_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vitral.compare import side_by_side

    monkeypatch.setattr(side_by_side, "block_differences", lambda *losses, same_tokens: np.array([math.inf, 0.0]))
    (one,) = compared(folder, "base", "wider").relations
    assert one.difference is None
    assert one.why in relation_text(one)


def test_runs_of_records_show_their_questions_and_answers(tmp_path: Path) -> None:
    corpus = {"source": "task:copy", "task": {"sequences": 100, "length": 3}}
    model = {"context_length": 8, "d_model": 6, "num_layers": 1, "num_heads": 3}
    for name in ("one", "two"):
        vitral.train("task:copy", tmp_path / name, corpus=corpus, model=model, training={"steps": 1})
    found = vitral.compare(tmp_path / "one", tmp_path / "two", losses=False)
    dataset = vitral.load(tmp_path / "one").dataset()
    begin, end = dataset.splits["test"].segments[0]
    question = dataset.tokenizer.decode(dataset.splits["test"].tokens[begin:end]).partition("<|answer|>")[0]
    for run in found.runs:
        assert run.sample is not None
        assert run.sample.startswith(f"{question} → ")
