"""The plan of a bare text: the same for corpus, count and train, and one that every text can be trained by."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vitral
from vitral.core.errors import UsageError
from vitral.data import Corpus, CorpusConfig, prepare
from vitral.data.batches import Reading
from vitral.evaluation import ngram_baselines
from vitral.model import ModelConfig
from vitral.model.config import DropoutConfig
from vitral.report.survey import text_table
from vitral.runs import RunConfig
from vitral.training.configuration import plan_run
from vitral.training.plans import FIT
from vitral.training.regularisation import TABLE
from vitral.training.text_plan import LEAST_BLOCKS, LEAST_CHARACTERS, TextPlan, plan_text, written_plan

TINY: dict[str, Any] = {
    "model": {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 16},
    "training": {"steps": 2, "evaluate_every": 2, "threads": 1},
}
SMALL: dict[str, Any] = {"model": {"d_model": 96, "num_layers": 2}}
WORDS = ["so", "the", "light", "was", "blue", "and", "then,", "it", "fell", "over\n"]


def prose(size: int) -> str:
    draw = random.Random(size)
    words = " ".join(draw.choice(WORDS) for _ in range(size // 2 + 1))
    return words[:size]


def in_memory(text: str) -> Corpus:
    return Corpus("text", text, len(text), "")


def planned(text: str, minutes: float | None = None, **layers: Any) -> tuple[RunConfig, TextPlan]:
    """The configuration of a text in memory, and its plan."""
    plain: dict[str, Any] = {"training": {} if minutes is None else {"minutes": minutes}, **layers}
    pinned = {f"{table}.{key}" for table, keys in layers.items() for key in keys}
    plan = plan_text(in_memory(text), RunConfig.parse(plain, "test"), pinned)
    merged = {table: plain.get(table, {}) | plan.layer.get(table, {}) for table in ("corpus", "model", "training")}
    return RunConfig.parse(merged, "test"), plan


@given(
    st.integers(LEAST_CHARACTERS, 40_000),
    st.sampled_from(["a", "a\n", "\U0001f600ab", "".join(map(chr, range(0x4E00, 0x4F00)))]) | st.just(""),
    st.sampled_from([None, 0.2, 2.0, 30.0]),
    st.sampled_from(["", "byte", "bpe"]),
)
def test_any_text_from_200_characters_on_can_be_trained_and_measured(
    size: int, alphabet: str, minutes: float | None, tokenizer: str
) -> None:
    text = (alphabet * size)[:size] if alphabet else prose(size)
    try:
        config, _ = planned(text, minutes, **({"corpus": {"tokenizer": tokenizer}} if tokenizer else {}))
    except UsageError:  # ten equal characters can be one byte pair
        assert tokenizer == "bpe"
        return
    dataset = prepare(config.corpus, corpus=in_memory(text))
    splits = dataset.splits
    reading = Reading(config.model.context_length)
    assert all(reading.counts(split).any() for split in splits.values())
    ngram_baselines(splits["train"], splits["test"], dataset.tokenizer.vocab_size)


def test_a_short_text_holds_out_its_end_and_a_long_one_blocks() -> None:
    least = LEAST_BLOCKS * 5_000
    for size, split in ((LEAST_CHARACTERS, "tail"), (least - 1, "tail"), (least, "blocks")):
        assert planned(prose(size))[0].corpus.split == split
    with pytest.raises(UsageError, match="199"):
        planned(prose(199))
    assert planned(prose(20_000), corpus={"split": "blocks"})[0].corpus.split == "blocks"  # a pin is not overruled


def test_the_context_of_a_short_text_fits_into_its_shortest_split() -> None:
    # The validation split is a twentieth: 10, 50 and 250 characters.
    contexts = [planned(prose(size), 2.0)[0].model.context_length for size in (200, 1_000, 5_000)]
    assert contexts == [8, 32, 128]


def test_a_text_that_is_seen_often_gets_dropout() -> None:
    none = ModelConfig().dropout
    # Two minutes are about a thousand steps of 16 windows of 128: 2.05 million characters, eight times 256,000.
    assert planned("ab\n" * 95_000, 2.0, **SMALL)[0].model.dropout == DropoutConfig(**TABLE[1].dropout)
    assert planned("ab\n" * 130_000, 2.0, **SMALL)[0].model.dropout == none
    assert planned("ab\n" * 95_000, 60.0, **SMALL)[0].model.dropout == DropoutConfig(**TABLE[2].dropout)
    assert planned(prose(2_000), training={"steps": 2})[0].model.dropout == none
    assert planned(prose(2_000), training={"steps": 900})[0].model.dropout != none
    assert planned(prose(2_000), 2.0, model={"dropout": 0.0})[0].model.dropout == none


def test_a_time_leaves_dropout_to_the_measured_speed_unless_it_is_chosen(essay: str) -> None:
    none = {"dropout": 0.0}
    assert plan_run(essay, minutes=3.0).config.training.regularisation == FIT
    assert plan_run("fast", minutes=3.0).config.training.regularisation == FIT
    sized = plan_run(essay, minutes=3.0, overrides=[{"model": {"d_model": 32}}]).config.training
    assert (sized.plan, sized.regularisation) == ("auto", FIT)
    for start in (essay, "fast"):
        pinned = plan_run(start, minutes=3.0, overrides=[{"model": none}]).config
        assert (pinned.training.plan, pinned.training.regularisation) == (FIT, None)
        assert pinned.model.dropout == DropoutConfig()
    assert plan_run(essay, overrides=[{"training": {"steps": 5}}]).config.training.regularisation is None
    assert plan_run("fast").config.training.regularisation is None


@pytest.fixture(scope="module")
def essay(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("texts") / "essay.txt"
    path.write_text(prose(1_500), encoding="utf-8", newline="\n")
    return str(path)


TOLD = list[str]()
"""The notes of this training."""


@pytest.fixture(scope="module")
def run(essay: str, tmp_path_factory: pytest.TempPathFactory) -> vitral.Run:
    out = tmp_path_factory.mktemp("runs") / "essay"
    return vitral.train(essay, out, callback=lambda event: TOLD.append(event.get("text", "")), **TINY)


def test_survey_count_and_train_have_one_plan(essay: str, run: vitral.Run) -> None:
    plan = plan_run(essay, overrides=[TINY])
    trained = RunConfig.parse(run.config, "run")
    assert trained.corpus == plan.config.corpus
    assert trained.model.context_length == plan.config.model.context_length
    assert trained.training.batch_size == plan.config.training.batch_size
    assert plan.text.brief(has_dropout=True) in TOLD
    counted = vitral.count(essay, **TINY)
    assert (counted.config, counted.vocab_size) == (plan.config.model, run.model.vocab_size)
    surveyed = vitral.survey(essay, minutes=2.0)
    usual = plan_run(essay)
    assert list(surveyed.plan) == usual.text.plain()
    assert surveyed.report.tokens == {name: split.tokens.size for name, split in usual.dataset().splits.items()}
    per_step = usual.config.model.context_length * usual.config.training.batch_size
    assert surveyed.report.batches_per_pass == surveyed.report.tokens["train"] / per_step


def test_what_is_pinned_stays(essay: str) -> None:
    config = vitral.configure(essay, overrides=[{"corpus": {"tokenizer": "bpe:300"}, "model": {"context_length": 7}}])
    assert config.corpus == CorpusConfig.parse({**config.corpus.plain(), "tokenizer": "bpe:300"}, "corpus")
    assert config.model.context_length == 7
    counted = vitral.count(essay, tokenizer="byte", context=9, training={"steps": 1})
    assert (counted.vocab_size, counted.config.context_length) == (256, 9)
    preset = vitral.configure("shakespeare", corpus=essay)
    assert (preset.corpus.split, preset.model.context_length) == ("blocks", 50)


def test_a_run_is_counted_and_surveyed_as_it_is(run: vitral.Run) -> None:
    counted = vitral.count(str(run.path))
    assert counted.cost.parameters == run.parameters
    assert (counted.config, counted.vocab_size) == (run.model.config, run.model.vocab_size)
    surveyed = vitral.survey(str(run.path))
    assert surveyed.report.tokens == {name: split.tokens.size for name, split in run.dataset().splits.items()}
    assert surveyed.baselines == run.ngram_baselines()


def test_records_have_no_lines(tmp_path: Path) -> None:
    pairs = [json.dumps({"source": f"a\nb{number}", "target": "c"}) for number in range(90)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(pairs), encoding="utf-8")
    for source, has_lines in (tmp_path / "pairs.jsonl", False), ("sample", True):
        rows = text_table(vitral.survey(source).report).plain()
        assert ("lines" in {row["quantity"] for row in rows}) is has_lines


def test_a_task_is_split_by_sequences():
    for corpus, split in (({"task": {"name": "recall"}}, "sequences"), ({"source": "sample"}, "blocks")):
        plan = written_plan(RunConfig.parse({"corpus": corpus}), "a file")
        assert {choice.key: choice.word for choice in plan.choices}["corpus.split"] == split
        assert any(split in line for line in plan.lines)
