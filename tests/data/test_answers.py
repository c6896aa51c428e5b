"""Records: a file becomes whole records, their answers alone are targets, and tasks have the right answers."""

import json
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.conftest import refusal
from vitral.core.errors import UsageError
from vitral.data import Batches, CorpusConfig, Dataset, Split, load_corpus, prepare, prepare_recorded, windows
from vitral.data.answers import ANSWER, END, Answers, chat, pair
from vitral.data.batches import IGNORED, PADDING, Reading, ShuffledBatches, thinned
from vitral.data.corpora import records_in
from vitral.data.tasks import Task, task_texts

CHAT = [
    {"role": "system", "content": "be short"},
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "hi"},
    {"role": "user", "content": "bye"},
    {"role": "assistant", "content": ""},
]
LINES: dict[str, list[dict[str, Any]]] = {
    "pairs": [
        {"source": "a b", "target": "b a", "id": 3},
        {"source": "é\n", "target": ""},
        {"source": "x", "target": "y"},
    ],
    "chats": [{"messages": CHAT}, {"messages": CHAT[1:3]}, {"messages": CHAT[3:]}],
    "labels": [{"text": "good book", "label": "yes"}, {"text": "bad", "label": 0}, {"text": "so so", "label": "yes"}],
}
RECORDS = {
    "pairs": ["a b<|answer|>b a<|end|>", "é\n<|answer|><|end|>", "x<|answer|>y<|end|>"],
    "chats": [
        "<|system|>be short<|user|>hello<|answer|>hi<|end|><|user|>bye<|answer|><|end|>",
        "<|user|>hello<|answer|>hi<|end|>",
        "<|user|>bye<|answer|><|end|>",
    ],
    "labels": ["good book<|answer|>yes<|end|>", "bad<|answer|>0<|end|>", "so so<|answer|>yes<|end|>"],
}


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("\n\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return path


def decoded(dataset: Dataset, split: Split) -> list[str]:
    return [dataset.tokenizer.decode(split.tokens[begin:end]) for begin, end in split.segments]


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("tokenizer", ["char", "byte", "bpe:300"])
def test_the_lines_of_a_file_are_records_each_whole_in_one_split(kind: str, tokenizer: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", LINES[kind])
    assert records_in(str(path)) == kind
    config = CorpusConfig.parse({"source": str(path), "records": kind, "tokenizer": tokenizer})
    assert CorpusConfig.parse(config.plain()) == config
    dataset = prepare(config)
    result = [record for split in dataset.splits.values() for record in decoded(dataset, split)]
    assert sorted(result) == sorted(RECORDS[kind])
    assert all(len(split.segments) == 1 for split in dataset.splits.values())
    assert dataset.labels == (["0", "yes"] if kind == "labels" else [])
    assert dataset.describe().get("labels", []) == dataset.labels
    again = prepare_recorded(config, dataset.describe(), tokenizer=dataset.tokenizer, run_folder=tmp_path)
    assert again.answers == dataset.answers


def test_the_records_of_a_folder_are_those_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    written(tmp_path / "in" / "x.jsonl", LINES["pairs"][::2])
    written(tmp_path / "in" / "y.jsonl", LINES["pairs"])
    both = load_corpus(CorpusConfig.parse({"source": str(tmp_path / "in"), "records": "pairs"}))
    assert both.records is not None
    first, new, second = RECORDS["pairs"]  # of the second file only one is new
    assert [both.text[a:b] for a, b in both.records] == [first, second, new]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("x.jsonl", '\n{"source": "a", "answer": "b"}\n', "'answer'"),
        ("x.tsv", "source\ttarget\na\tb\n", "a table"),
        ("x.json", '{"question": "a", "answer": "b"}\n', "'question'"),
        ("x.json", '[{"source": "a", "target": "b"}]', "jq"),
    ],
)
def test_lines_that_nothing_says_how_to_read_are_refused(
    name: str, content: str, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UsageError) as refused:
        records_in(str(path))
    assert str(path) in str(refused.value)
    assert complaint in str(refused.value)
    path.rename(path.with_suffix(".txt"))
    assert records_in(str(path.with_suffix(".txt"))) is None


def test_the_border_of_a_chat_is_no_part_of_its_text(tmp_path: Path) -> None:
    """Two chats, and one of the same messages, are other data."""
    turns = [[{"role": role, "content": str(number)} for role in ("user", "assistant")] for number in range(4)]
    two = written(tmp_path / "two.jsonl", [{"messages": turn} for turn in turns])
    one = written(tmp_path / "one.jsonl", [{"messages": turn} for turn in (turns[0] + turns[1], *turns[2:])])
    first, second = (prepare(CorpusConfig.parse({"source": str(path), "records": "chats"})) for path in (two, one))
    assert first.load_text().text == second.load_text().text
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(
    ("kind", "line", "complaint"),
    [
        ("pairs", '{"source": "a"}', "'target' is missing"),
        ("pairs", '{"source": "a", "target": 1.5}', "no text in 'target'"),
        ("pairs", '{"source": "", "target": "b"}', "'source' is empty"),
        ("pairs", '{"source": "a<|end|>", "target": "b"}', "contains <|end|>"),
        ("pairs", "[1]", "not a JSON object"),
        ("labels", '{"text": "a", "label": null}', "no text in 'label'"),
        ("chats", '{"messages": "hello"}', "last message must be the assistant's"),
        ("chats", '{"messages": [{"role": "user", "content": "a"}]}', "last message must be the assistant's"),
        ("chats", '{"messages": [{"role": "assistant", "content": "a"}]}', "expected the role 'system' or 'user'"),
        ("chats", '{"messages": ["hello"]}', "expected the role"),
        ("chats", '{"messages": [{"role": "user", "content": ["a"]}]}', "no text in 'content'"),
    ],
)
def test_a_wrong_line_is_named(kind: str, line: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f"{json.dumps(LINES[kind][0])}\n{line}\n", encoding="utf-8")
    message = refusal(path, records=kind)
    assert f"{path}: line 2" in message
    assert complaint in message


@pytest.mark.parametrize("changes", [{"split": "tail"}, {"field": "x"}, {"draw": 1, "share": 0.5}, {"num_works": 1}])
def test_keys_that_would_cut_records_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="leave it out"):
        CorpusConfig.parse({"source": "x", "records": "pairs", **changes})


@given(st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(0, 3), min_size=1, max_size=3)), max_size=5))
def test_the_targets_are_what_stands_between_the_markers(turns: list[tuple[int, list[int]]]) -> None:
    """Against a walk over the tokens of chats: of each the length of questions and of answers."""
    tokens = [one for asked, answers in turns for answer in answers for one in (*[1] * asked, 8, *[2] * answer, 9)]
    is_open, expected = False, []
    for token in tokens:
        expected.append(is_open)
        is_open = token == 8 or (is_open and token != 9)
    assert Answers(8, 9).scored(np.array(tokens, dtype=np.int64)).tolist() == expected


TASKS: list[dict[str, Any]] = [
    {"name": "copy", "length": 5},
    {"name": "reverse", "shortest": 4, "length": 6, "symbols": 3},
    {"name": "sort", "length": 9, "symbols": 4},
    {"name": "add", "digits": 2},
    {"name": "dates"},
]


@pytest.mark.parametrize("settings", TASKS, ids=str)
def test_every_question_is_in_one_split_and_its_answer_is_right(settings: dict[str, Any]) -> None:
    task = CorpusConfig.parse({"task": {**settings, "sequences": 300}}).task
    assert task is not None
    texts = task_texts(task)
    pairs = [re.fullmatch(r"(.+)<\|answer\|>(.+)<\|end\|>", text) for text in texts]
    asked = [(one[1], one[2]) for one in pairs if one]
    assert len({question for question, _ in asked}) == 300
    dataset = prepare(CorpusConfig.parse({"task": task.plain()}))
    splits = {name: Counter(decoded(dataset, split)) for name, split in dataset.splits.items()}
    assert sum(splits.values(), Counter()).keys() == set(texts)
    assert sum(map(len, splits.values())) == 300
    assert {*splits["test"].values(), *splits["validation"].values()} == {1}
    assert all(splits["train"][text] == number for text, number in Counter(texts).items() if text in splits["train"])
    assert all(answer == answer_to(task, question) for question, answer in asked)
    assert all(len(question + answer) <= task.span for question, answer in asked)


def answer_to(task: Task, question: str) -> str:
    """The answer by other means."""
    if task.name == "add":
        left, right = question.split("+")
        return str(int(left) - -int(right))
    if task.name == "dates":
        return from_words(question)
    letters = list(question)
    {"copy": lambda: None, "reverse": letters.reverse, "sort": letters.sort}[task.name]()
    return "".join(letters)


SMALL = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
VALUES = {word: n for n, word in enumerate(SMALL.split(), 1)}
VALUES |= {f"{word}ty": 10 * n for n, word in enumerate(["for", "fif", "six", "seven", "eigh", "nine"], 4)}
VALUES |= {"twenty": 20, "thirty": 30, "oh": 0}


def from_words(text: str) -> str:
    """The date that a text says, word by word."""

    def value(words: str) -> int:
        return sum(VALUES[word] for word in words.replace("-", " ").split())

    day, month, century, rest = text.split(" ", 3)
    number = 100 * value(century) + (0 if rest == "hundred" else value(rest))
    months = {f"{date(2000, n, 1):%B}": n for n in range(1, 13)}
    return date(number, months[month], value(day)).isoformat()


def test_more_questions_begin_with_fewer_and_there_are_no_more_than_there_are() -> None:
    few, more = ({"name": "add", "digits": 3, "sequences": n} for n in (100, 5000))
    texts = [task_texts(CorpusConfig.parse({"task": one}).task) for one in (few, more)]  # pyright: ignore[reportArgumentType]
    assert texts[1][: len(texts[0])] == texts[0]
    with pytest.raises(UsageError, match="30 different questions"):
        load_corpus(CorpusConfig.parse({"task": {"name": "copy", "symbols": 2, "length": 4, "sequences": 100}}))


REVERSE = {"source": "task:reverse", "task": {"sequences": 100, "length": 6}}


def test_rows_are_records_as_a_model_of_each_shape_reads_them() -> None:
    dataset = prepare(CorpusConfig.parse(REVERSE))
    split, decode = dataset.splits["train"], dataset.tokenizer.decode
    records = decoded(dataset, split)
    for reading in (Reading(14), Reading(7, source_length=6)):
        rows = [(row, asked) for pairs in windows(split, reading, 9) for row, asked in zip(*pairs, strict=True)]
        for row, asked in rows:
            length, scored = reading.source_length or 0, asked != IGNORED
            source, target = row[:length], row[length:]
            prompt = decode(source[source != PADDING].numpy()) + decode(target[: int(scored.nonzero()[0]) + 1].numpy())
            assert prompt.endswith(ANSWER)
            assert prompt + decode(asked[scored].numpy()) in records
        assert len(rows) == len(records)


@pytest.mark.parametrize("kind", [Batches, ShuffledBatches])
def test_long_records_are_left_out_and_a_pass_has_each_other_one_once(kind: type[Batches]) -> None:
    dataset = prepare(CorpusConfig.parse(REVERSE))
    split = dataset.splits["train"]
    reading = Reading(5, source_length=4)
    fits = reading.fits(split)
    assert 0 < fits.sum() < len(fits)
    assert (fits == [len(one) <= 2 * 4 + len(ANSWER + END) for one in decoded(dataset, split)]).all()
    batches = kind(split, context_length=reading, batch_size=int(fits.sum()), seed=3)
    assert batches.num_windows == fits.sum()
    inputs, _ = batches.batch(5)
    sources = {dataset.tokenizer.decode(row[:4][row[:4] != PADDING].numpy()) for row in inputs}
    whole = {one.partition(ANSWER)[0] for one, fit in zip(decoded(dataset, split), fits, strict=True) if fit}
    assert sources <= whole
    assert sources == whole or kind is Batches


def test_a_thin_split_has_whole_records() -> None:
    split = prepare(CorpusConfig.parse(REVERSE)).splits["train"]
    whole = {tuple(segment) for segment in split.segments.tolist()}
    for most in (1, 50, 200):
        thin = thinned(split, most)
        assert thin.answers == split.answers
        assert {tuple(segment) for segment in thin.segments.tolist()} <= whole
        assert int(thin.lengths.sum()) <= most or len(thin.segments) == 1


def test_the_prompt_of_a_chat_is_its_beginning() -> None:
    whole = chat(CHAT)
    assert [whole.startswith(chat(CHAT[:turns])) for turns in (2, 3, 4)] == [True] * 3
    assert chat(CHAT[:2]).endswith(f"hello{ANSWER}")


def test_equal_records_are_one(tmp_path: Path) -> None:
    lines = [{"source": str(number % 40), "target": str(number % 40 + 1)} for number in range(240)]
    path = written(tmp_path / "pairs.jsonl", lines)
    dataset = prepare(CorpusConfig(source=str(path), records="pairs"))
    rows = [
        dataset.tokenizer.decode(split.tokens[begin:end])
        for split in dataset.splits.values()
        for begin, end in split.segments.tolist()
    ]
    assert len(rows) == len(set(rows)) == 40


def test_records_of_further_texts_are_not_those_of_the_main_text(tmp_path: Path) -> None:
    """Of 20 further records 15 are new; the held-out ones stand in no training text, and a run reads the same again."""
    lines = [{"source": str(number), "target": str(number + 1)} for number in range(45)]
    main, more = written(tmp_path / "main.jsonl", lines[:30]), written(tmp_path / "more.jsonl", [*lines[25:], lines[2]])
    config = CorpusConfig.parse({"source": str(main), "records": "pairs", "also": [str(more)]})
    dataset = prepare(config)
    rows = [row for split in dataset.splits.values() for row in decoded(dataset, split)]
    assert sorted(rows) == sorted(pair(line["source"], line["target"]) for line in lines)
    assert any("21" in note and "6" in note for note in dataset.notes)
    again = prepare_recorded(config, dataset.describe(), tokenizer=dataset.tokenizer, run_folder=tmp_path)
    assert again.fingerprint == dataset.fingerprint
    with pytest.raises(UsageError, match="leave it out"):
        prepare(config.model_copy(update={"also": (str(written(tmp_path / "same.jsonl", lines[:9])),)}))
