"""Works of a text: found by lines, files or contents; held out whole; drawn for training, equally much from each."""

from itertools import pairwise

import numpy as np
import pytest

from vitral.core.errors import UsageError
from vitral.data import SPLITS, CorpusConfig, prepare
from vitral.data.split import Blocks, in_blocks
from vitral.data.works import drawn, held_out, shared, works_from, works_of

NUM_WORKS = 20


def work(number: int, length: int) -> str:
    """A work that is its own letter, so that a text shows which works it is of."""
    return f"CHAPTER {number}\n" + (chr(ord("a") + number) * 39 + "\n") * (length // 40)


LENGTHS = [8_000 + 2_000 * (number % 5) for number in range(NUM_WORKS)]


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("by nobody\n" + "".join(map(work, range(NUM_WORKS), LENGTHS)), encoding="utf-8", newline="\n")
    return path


def dataset(path, **options):
    return prepare(CorpusConfig.parse({"source": str(path), "tokenizer": "byte", "works": ["CHAPTER *"], **options}))


def letters(data, split="train"):
    """How often each work's letter stands in a split."""
    counts = np.bincount(data.splits[split].tokens, minlength=256)
    return {number: int(counts[ord("a") + number]) for number in range(NUM_WORKS) if counts[ord("a") + number] > 9}


def test_held_out_works_are_whole_and_nowhere_else(book):
    data = dataset(book, split="works")
    by_split = {split: set(letters(data, split)) for split in SPLITS}
    assert sum(map(len, by_split.values())) == len(set().union(*by_split.values())) == NUM_WORKS
    held_out_works = {split: {int(title.split()[1]) for title in titles} for split, titles in data.works.items()}
    assert held_out_works == by_split
    sizes = {split: sum(LENGTHS[number] for number in numbers) / sum(LENGTHS) for split, numbers in by_split.items()}
    assert 0.1 <= sizes["test"] <= 0.2
    assert 0.05 <= sizes["validation"] <= 0.15
    for split in ("validation", "test"):
        assert all(count >= LENGTHS[number] * 38 // 40 for number, count in letters(data, split).items())
    assert data.describe()["split"]["works"] == {split: list(data.works[split]) for split in SPLITS}
    # Text of no work is training text.
    assert "by nobody" in data.tokenizer.decode(data.splits["train"].tokens)


def test_every_draw_and_every_amount_is_tested_on_the_same_bytes(book):
    options = ({}, {"draw": 1, "share": 0.25}, {"draw": 2, "share": 0.25}, {"draw": 2, "share": 0.03, "num_works": 1})
    tokens = [dataset(book, split="works", **option).splits for option in options]
    for split in ("validation", "test"):
        assert all(np.array_equal(one[split].tokens, tokens[0][split].tokens) for one in tokens)


def test_drawn_amounts_are_equal_from_one_work_several_or_all_and_change_with_the_draw(book):
    whole = len(dataset(book, split="works").splits["train"].tokens)
    wanted = round(0.03 * whole)
    drawn_from = {}
    for num_works in (None, 1, 3):
        for draw in range(6):
            chosen = {} if num_works is None else {"num_works": num_works}
            data = dataset(book, split="works", share=0.03, draw=draw, **chosen)
            assert abs(len(data.splits["train"].tokens) - wanted) < (num_works or 1)
            assert data.trained_on["training_characters"] == len(data.splits["train"].tokens)
            drawn_from[num_works, draw] = letters(data)
            if num_works:
                assert len(data.trained_on["works"]) == len(letters(data)) == num_works
                assert min(letters(data).values()) > 0.9 * wanted / num_works
    assert len({min(titles) for (num_works, _), titles in drawn_from.items() if num_works == 1}) > 2
    held_out = dataset(book, split="works").works
    assert not {f"CHAPTER {n}" for titles in drawn_from.values() for n in titles} & {*held_out["test"]}


def test_a_smaller_share_of_a_draw_lies_in_a_larger_one_and_both_are_exact():
    blocks = in_blocks([(0, 70_000), (90_000, 171_234)])
    for draw in (0, 7):
        parts = [shared(blocks, share, draw) for share in (0.013, 0.2, 0.7, 1.0)]
        assert [part.num_characters for part in parts] == [round(s * 151_234) for s in (0.013, 0.2, 0.7, 1.0)]
        sets = [{position for begin, end in part for position in range(begin, end)} for part in parts]
        assert all(small < large for small, large in pairwise(sets))
        assert list(parts[-1]) == list(blocks)
    assert list(shared(blocks, 0.2, 0)) != list(shared(blocks, 0.2, 7))
    assert [end - begin for begin, end in drawn(Blocks(np.array([[3, 10]])), 7, 1)] == [7]


def test_a_folder_of_files_is_one_work_a_file(tmp_path):
    folder = tmp_path / "poems"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.txt").write_text(work(number, 6_000), encoding="utf-8", newline="\n")
    data = prepare(CorpusConfig.parse({"source": str(folder), "tokenizer": "byte", "split": "works"}))
    assert sorted(title for titles in data.works.values() for title in titles) == [f"{n}.txt" for n in range(6)]
    for split, titles in data.works.items():
        assert {f"{number}.txt" for number in letters(data, split)} == set(titles)
    one = prepare(CorpusConfig.parse({"source": str(folder), "num_works": 1, "draw": 5}))
    assert len(one.trained_on["works"]) == 1


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "works"),
        ({"split": "tail", "share": 0.5, "draw": 1}, "works"),
        ({"works": [], "draw": 1}, "draw"),
        ({"split": "works", "draw": 1}, "draw"),
        ({"split": "works", "share": 1.0, "draw": 0}, "draw"),
        ({"split": "one-work", "num_works": 1}, "num_works"),
        ({"split": "works", "train_on": "others"}, "train_on"),
    ],
)
def test_keys_that_would_change_nothing_are_refused(book, options, key):
    with pytest.raises(UsageError, match=rf"^corpus\.{key}: "):
        dataset(book, **options)


def contents(text):
    return [(work.title, text[work.begin : work.end]) for work in works_of(text)]


@pytest.mark.parametrize(
    ("table", "works"),
    [
        ("A\nNOTES\nB\nNOTES\n\n", ["A\nx\n", "NOTES\ny\n", "B\nz\n", "NOTES\nw\n"]),
        # A title as a line of earlier and later works.
        ("HAMLET\nLEAR\nTEMPEST\n", ["HAMLET\nTEMPEST\nx\n", "LEAR\ny\nHAMLET\n", "TEMPEST\nz\nLEAR\n"]),
    ],
)
def test_titles_that_stand_twice_in_the_contents_or_inside_works_do_not_move_the_works(table, works):
    assert contents(f"Contents\n{table}\n" + "".join(works)) == [(work.split("\n")[0], work) for work in works]


def test_lines_that_begin_works_are_found_and_missing_ones_told():
    text = "front\nACT I\none\n  ACT II\ntwo\nTHE END"
    assert [(one.title, text[one.begin : one.end]) for one in works_from(text, ["ACT I", "*ACT II"])] == [
        ("ACT I", "ACT I\none\n"),
        ("ACT II", "  ACT II\ntwo\nTHE END"),
    ]
    with pytest.raises(UsageError, match=r"corpus\.works"):
        works_from("ACT I\nACT II\n", ["ACT I", "ACT III"])


def test_a_text_whose_works_are_unknown_or_too_few_is_refused(tmp_path):
    plain = tmp_path / "plain.txt"
    plain.write_text("no chapters\n" * 5_000, encoding="utf-8")
    with pytest.raises(UsageError, match="its works are not known"):
        prepare(CorpusConfig.parse({"source": str(plain), "split": "works"}))
    with pytest.raises(UsageError, match="the text has 2 works"):
        held_out(works_from("A\nB\n", ["A", "B"]))


def test_one_work_is_tested_on_whether_it_or_the_others_are_trained_on(tmp_path):
    lengths = [3 * length for length in LENGTHS]
    book = tmp_path / "long.txt"
    book.write_text("".join(map(work, range(NUM_WORKS), lengths)), encoding="utf-8", newline="\n")
    chosen = set()
    for draw in range(6):
        own, others = (
            dataset(book, split="one-work", draw=draw, **more) for more in ({}, {"train_on": "others", "share": None})
        )
        (number,) = letters(own)
        chosen.add(number)
        assert lengths[number] * 2 >= max(lengths)
        assert set(letters(others)) == set(range(NUM_WORKS)) - {number}
        for split in ("validation", "test"):
            assert set(letters(own, split)) == {number}
            assert np.array_equal(own.splits[split].tokens, others.splits[split].tokens)
        assert own.works["test"] == [f"CHAPTER {number}"] == own.works["train"]
        assert own.works["test"][0] not in others.works["train"]
        together = sum(len(own.splits[split].tokens) for split in SPLITS)
        assert together == len(work(number, lengths[number]))
        assert own.fingerprint != others.fingerprint
    assert len(chosen) > 2
