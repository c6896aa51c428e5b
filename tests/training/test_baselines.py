"""N-gram baselines that are counted beside the steps are those of counting alone, however they are counted."""

import multiprocessing
import os
import signal
import time

import pytest

from vitral.core.errors import UsageError
from vitral.data import Corpus, CorpusConfig, Dataset, prepare
from vitral.evaluation import NgramBaselines, ngram_baselines
from vitral.training import baselines
from vitral.training.baselines import counted_beside

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
SECONDS = 60


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    text = "".join(f"{number} times {number} is {number * number}.\n" for number in range(1_117))
    corpus = Corpus("squares", text, len(text), "0" * 64)
    return prepare(CorpusConfig(), corpus=corpus)


@pytest.fixture(scope="module")
def expected(dataset: Dataset) -> NgramBaselines:
    return ngram_baselines(dataset.splits["train"], dataset.splits["test"], dataset.tokenizer.vocab_size)


@pytest.fixture(params=[0, 2**40], ids=["process", "thread"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "FORKED_FROM", request.param)


@pytest.mark.usefixtures("_way")
def test_the_result_is_that_of_counting_alone(dataset: Dataset, expected: NgramBaselines) -> None:
    assert counted_beside(dataset, lambda: None).result(SECONDS) == expected


@pytest.mark.usefixtures("_way")
def test_an_exception_of_the_check_is_the_result(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "LOOKS", 0.0)
    monkeypatch.setattr(baselines, "_count_apart", lambda *given: time.sleep(SECONDS))

    def check() -> None:
        raise UsageError("asked to stop")

    with pytest.raises(UsageError, match="asked to stop"):
        counted_beside(dataset, check).result(SECONDS)
    assert multiprocessing.active_children() == []


def test_a_child_that_is_given_no_time_is_replaced_once_the_run_needs_the_result(
    dataset: Dataset, expected: NgramBaselines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "FORKED_FROM", 0)
    monkeypatch.setattr(baselines, "PATIENCE", 0.07)
    monkeypatch.setattr(baselines, "LOOKS", 0.01)
    monkeypatch.setattr(baselines, "_count_apart", lambda *given: time.sleep(SECONDS))
    counting = counted_beside(dataset, lambda: None)
    time.sleep(0.2)
    assert not counting.done()
    counting.is_needed.set()
    assert counting.result(SECONDS) == expected
    assert multiprocessing.active_children() == []


def test_a_child_that_is_killed_is_replaced(
    dataset: Dataset, expected: NgramBaselines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "FORKED_FROM", 0)
    monkeypatch.setattr(baselines, "_count_apart", lambda *given: os.kill(os.getpid(), signal.SIGKILL))
    assert counted_beside(dataset, lambda: None).result(SECONDS) == expected
