"""N-gram baselines that are counted beside the steps are those of counting alone, however they are counted."""

import os
import signal
import threading

import pytest

from vitral.core.errors import UsageError
from vitral.data import Corpus, CorpusConfig, Dataset, prepare
from vitral.evaluation import NgramBaselines, ngram_baselines
from vitral.training import baselines
from vitral.training.baselines import counted_beside

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
only_linux = pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux has a policy for idle processors")
SECONDS = 60


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    text = "".join(f"{number} times {number} is {number * number}.\n" for number in range(1_117))
    corpus = Corpus("squares", text, len(text), "0" * 64)
    return prepare(CorpusConfig(), corpus=corpus, cache=tmp_path_factory.mktemp("cache"))


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
    begun = threading.Event()

    def check() -> None:
        begun.set()
        raise UsageError("asked to stop")

    child, result = _sleeping()
    monkeypatch.setattr(baselines, "_forked", lambda dataset: (child, result))
    with pytest.raises(UsageError, match="asked to stop"):
        counted_beside(dataset, check).result(SECONDS)
    assert begun.is_set()
    if baselines.FORKED_FROM == 0:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_child_that_is_given_no_time_is_replaced_once_the_run_needs_the_result(
    dataset: Dataset, expected: NgramBaselines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "FORKED_FROM", 0)
    monkeypatch.setattr(baselines, "PATIENCE", 0.07)
    monkeypatch.setattr(baselines, "LOOKS", 0.01)
    child, result = _sleeping()
    monkeypatch.setattr(baselines, "_forked", lambda dataset: (child, result))
    looks, is_enough = [0], threading.Event()

    def check() -> None:
        looks[0] += 1
        if looks[0] == 7:
            is_enough.set()

    counting = counted_beside(dataset, check)
    assert is_enough.wait(SECONDS)
    assert not counting.done()
    os.kill(child, 0)
    assert counting.result(SECONDS) == expected
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert baselines._processor_time(child) == 0.0


def _sleeping() -> tuple[int, int]:
    result, _given = os.pipe()  # which stays open
    return os.spawnlp(os.P_NOWAIT, "sleep", "sleep", str(SECONDS)), result
