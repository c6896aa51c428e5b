"""The study of amount and variety of text: its design, its measures and its view."""

import math

import pytest
from text_studies import made, shown

from tests.studies.conftest import tables
from vitral.core.streams import numpy_stream
from vitral.data import prepare
from vitral.evaluation import evaluate_split
from vitral.runs import load_run
from vitral.studies import StudyResult, study_named
from vitral.studies.judging import judge
from vitral.studies.probe import Trained
from vitral.studies.probes import probe_named
from vitral.training import RunConfig, train

DATA = study_named("data")
AMOUNT = {"all": 1, "quarter": 4, "sixteenth": 16, "forty-eighth": 48}
LESS_IS_WORSE = {
    **{name: 1.60 + 0.02 * parts**0.5 for name, parts in AMOUNT.items()},
    "eight-works": 1.75,
    "one-work": 1.82,
    "english-portuguese": 1.67,
}


def contents(result: StudyResult, gap) -> dict:
    """What the probe would have measured: amounts as designed, a gap between the losses as a test chooses."""
    measured = {}
    for arm in result.arms:
        parts = AMOUNT.get(arm.arm.name, 48)
        tokens = 4_746_729 // parts
        measured[arm.arm.name] = {
            seed: {
                "tokens": tokens,
                "characters": tokens,
                "bytes": tokens,
                "words_seen": 0.99 - 0.01 * math.log2(parts),
                "passes": 491_520 / tokens,
                "train_loss": loss - gap(parts),
            }
            for seed, loss in arm.losses.items()
        }
    return measured


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Trained:
    folder = tmp_path_factory.mktemp("amounts")
    words = numpy_stream(9, "words").choice(["não", "the", "cat", "sang", "to", "me\n"], size=9_000).tolist()
    # The last tenth is the test part: a word that stands only there is a word never met.
    (folder / "t.txt").write_text(" ".join([*words, *["zebra", "cat"] * 200]), encoding="utf-8")
    config = RunConfig.parse(
        {
            "corpus": {"source": str(folder / "t.txt"), "tokenizer": "byte", "split": "tail", "share": 0.4},
            "model": {"context_length": 7, "d_model": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.3},
            "training": {"steps": 5, "batch_size": 3, "accumulation": 2, "evaluate_every": 5, "device": "cpu"},
        }
    )
    train(config, folder / "run")
    return Trained("all", 1, load_run(folder / "run", "last"), prepare(config.corpus), "quick")


def test_what_is_measured_of_the_amount(run):
    measured = probe_named("amounts").measure(run)
    train_part, tokenizer = run.dataset.splits["train"], run.dataset.tokenizer
    text, test = (tokenizer.decode(run.dataset.splits[part].tokens) for part in ("train", "test"))
    assert measured["tokens"] == measured["bytes"] == len(text.encode()) == len(train_part.tokens)
    assert len(text) < measured["bytes"]
    assert measured["passes"] == pytest.approx(5 * 3 * 2 * 7 / len(train_part.tokens))
    common = prepare(run.dataset.config.model_copy(update={"share": 1 / 64})).splits["train"]
    known = tokenizer.decode(common.tokens)
    assert known in text
    assert len(known) < len(text)
    assert measured["train_loss"] == evaluate_split(run.run.model, common, tokenizer).loss
    words = test.split()
    # A word cut at the part's border is not among the training words either.
    assert measured["words_seen"] == pytest.approx(1 - words.count("zebra") / len(words), abs=2 / len(words))
    assert probe_named("amounts").measure(run) == measured


def test_less_text_leaves_a_larger_gap_where_it_does(tmp_path):
    result = made(tmp_path, DATA, "standard", LESS_IS_WORSE, spread=0.0004)
    view = shown(probe_named("amounts"), result, contents(result, lambda parts: 0.01 * parts))
    assert [row[0] for row in tables(view)[0].cells] == [arm.arm.title for arm in result.arms]
    (gap,) = judge(view.comparisons)
    about = gap.comparison
    assert (about.arm, about.against) == ("forty-eighth", "all of the text")
    assert gap.difference == pytest.approx(0.47)
