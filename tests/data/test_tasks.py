"""Generated tasks: the sequences are what they promise, a window is one sequence, and they are found again."""

from pathlib import Path

import numpy as np
import pytest

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data import Batches, CorpusConfig, Dataset, load_corpus, prepare, prepare_recorded, windows
from vitral.data.tasks import KeyValueRecall, MarkovChains, RepeatedStrings, Task, task_texts

TASKS = [
    RepeatedStrings(sequences=300),
    MarkovChains(sequences=300),
    KeyValueRecall(sequences=300),
    KeyValueRecall(sequences=300, pairs=3, queries=3, keys=3, values=2, shortest=5, longest=5, fillers=4),
]


def drawn(task: Task, count: int = 2000) -> np.ndarray:
    sequences = task.draw(numpy_stream(3, "test"), count)
    assert isinstance(sequences, np.ndarray)
    return sequences


def rows(task: Task) -> list[str]:
    return task_texts(task)


def prepared(task: Task) -> Dataset:
    return prepare(CorpusConfig.parse({"task": task.plain()}))


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_a_window_of_the_whole_length_is_one_sequence(task: Task) -> None:
    dataset, sequences = prepared(task), set(rows(task))
    decode = dataset.tokenizer.decode
    sizes = {name: len(split.segments) for name, split in dataset.splits.items()}
    assert sizes == {"train": 255, "validation": 15, "test": 30}
    joined = sorted(
        decode(np.asarray(split.tokens[begin:end]))
        for split in dataset.splits.values()
        for begin, end in split.segments
    )
    assert joined == sorted(rows(task))  # no place twice, and none missing
    batches = Batches(dataset.splits["train"], context_length=task.span - 1, batch_size=50, seed=1)
    assert batches.num_windows == 255
    inputs, targets = batches.batch(0)
    whole = [decode(row) + decode(last) for row, last in zip(inputs.numpy(), targets[:, -1:].numpy(), strict=True)]
    assert set(whole) <= sequences
    result = [each for each, _ in windows(dataset.splits["test"], task.span - 1, 7)]
    assert sum(map(len, result)) == 30
    assert all(
        decode(row)[:-1] in {one[: task.span - 2] for one in sequences} for each in result for row in each.numpy()
    )


def test_a_string_is_repeated_with_its_own_period() -> None:
    task = RepeatedStrings(symbols=20, length=40, shortest=3, longest=9)
    result = drawn(task)
    fits = np.array([[(row[period:] == row[:-period]).all() for period in range(3, 10)] for row in result])
    assert fits.any(axis=1).all()
    first = 3 + fits.argmax(axis=1)
    assert np.bincount(first, minlength=10)[3:] / len(result) == pytest.approx(np.full(7, 1 / 7), abs=0.03)
    assert np.bincount(result[:, 0], minlength=20) / len(result) == pytest.approx(np.full(20, 0.05), abs=0.02)


def test_the_rows_of_a_chain_are_dirichlet() -> None:
    task = MarkovChains(symbols=3, length=200, concentration=0.5)
    result = drawn(task)
    counts = np.zeros((len(result), 3, 3))
    for before, after in zip(result[:, :-1].T, result[:, 1:].T, strict=True):
        counts[np.arange(len(result)), before, after] += 1
    visited = counts.sum(axis=2)[:, 0] > 0
    # A row that was visited is a Dirichlet row: its first transition from state 0 is uniform over the states,
    first = [result[row, 1:][result[row, :-1] == 0][0] for row in np.flatnonzero(visited)]
    assert np.bincount(first, minlength=3) / len(first) == pytest.approx(np.full(3, 1 / 3), abs=0.05)
    # and its second equals the first with probability (1 + c) / (1 + 3 c).
    pairs = [result[row, 1:][result[row, :-1] == 0][:2] for row in np.flatnonzero(counts.sum(axis=2)[:, 0] > 1)]
    assert np.mean([one == two for one, two in pairs]) == pytest.approx(1.5 / 2.5, abs=0.04)


@pytest.mark.parametrize("task", [one for one in TASKS if isinstance(one, KeyValueRecall)], ids=str)
def test_the_answer_is_the_value_of_the_key(task: KeyValueRecall) -> None:
    gaps = []
    for text in rows(task):
        stem, asked = text.split("?")
        known = stem.strip(".,:;")
        pairs = dict(zip(known[::2], known[1::2], strict=True))
        assert len(pairs) == task.pairs
        assert len(asked) == 2 * task.queries
        assert len(set(asked[::2])) == task.queries
        assert all(pairs[key] == value for key, value in zip(asked[::2], asked[1::2], strict=True))
        assert [text[position] for position in task.answers] == list(asked[1::2])
        gaps.append(len(stem) - len(stem.rstrip(".,:;")))
    assert min(gaps) == task.shortest
    assert max(gaps) == task.longest


def test_equal_settings_draw_equal_sequences_and_more_begin_with_the_same() -> None:
    one, more = MarkovChains(sequences=100), MarkovChains(sequences=5000)
    assert task_texts(one) == task_texts(MarkovChains(sequences=100))
    assert task_texts(more)[:100] == task_texts(one)
    assert task_texts(one) != task_texts(MarkovChains(sequences=100, seed=1))


def test_the_task_of_a_run_is_generated_again(tmp_path: Path) -> None:
    task = MarkovChains(sequences=100)
    dataset = prepared(task)
    config, recorded = dataset.config, dataset.describe()
    assert config == CorpusConfig.parse(config.plain())
    assert (recorded["source"], recorded["name"]) == ("task", "task:markov")
    assert recorded["split"]["method"] == "sequences"
    assert recorded["split"]["block"] == 65
    again = prepare_recorded(config, recorded, tokenizer=dataset.tokenizer, run_folder=tmp_path)
    assert again.fingerprint == dataset.fingerprint
    assert again.store_sha256 == dataset.store_sha256
    assert dataset.load_text().text == load_corpus(config).text
    other = CorpusConfig.parse({"task": {"name": "markov", "sequences": 101}})
    with pytest.raises(UsageError, match="SHA-256"):
        prepare_recorded(other, recorded, tokenizer=dataset.tokenizer, run_folder=tmp_path)
    other = CorpusConfig.parse({"task": {"name": "markov", "sequences": 100, "seed": 1}})
    with pytest.raises(UsageError, match="SHA-256"):
        prepare_recorded(other, recorded, tokenizer=dataset.tokenizer, run_folder=tmp_path)
