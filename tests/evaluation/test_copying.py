"""The copying meter against brute force."""

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.core.errors import UsageError
from vitral.data import CorpusConfig, prepare
from vitral.data.split import split_text
from vitral.evaluation import Copy, copied_spans, longest_copy, novel_share, training_text
from vitral.evaluation.copying import SEAM

TEXT = st.text("abc", max_size=15)


@given(TEXT, TEXT)
def test_the_longest_copy_is_the_longest(sample: str, training: str) -> None:
    pieces = {(b, e) for b in range(len(sample)) for e in range(b + 1, len(sample) + 1) if sample[b:e] in training}
    begin, end = min(pieces, key=lambda piece: (piece[0] - piece[1], piece[0]), default=(0, 0))
    assert longest_copy(sample, training) == Copy(end - begin, sample[begin:end], begin)


@given(TEXT.filter(len), TEXT, st.data())
def test_the_novel_share_counts_every_occurrence(sample: str, training: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, len(sample)))
    grams = [sample[at : at + n] for at in range(len(sample) - n + 1)]
    known = {training[at : at + n] for at in range(len(training) - n + 1)}
    assert novel_share(sample, training, n) == sum(gram not in known for gram in grams) / len(grams)


@pytest.mark.parametrize("n", [0, -1, 4])
def test_an_n_the_sample_does_not_have_is_refused(n: int) -> None:
    with pytest.raises(UsageError, match=rf"novel_share: n.*{n}$"):
        novel_share("abc", "abc", n)


@pytest.mark.parametrize("tokenizer", ["char", "bpe"])
def test_no_copy_reaches_over_a_gap_of_the_training_text(tokenizer: str, tmp_path: Path) -> None:
    text = "".join(f"{number}é " for number in range(4_000))
    source = tmp_path / "numbers.txt"
    source.write_text(text, encoding="utf-8", newline="\n")
    config = CorpusConfig.parse({"source": str(source), "tokenizer": tokenizer})
    runs = list(split_text(len(text), "blocks")["train"].runs())
    expected = [text[begin:end] for begin, end in runs]
    training = training_text(prepare(config))
    assert training == SEAM.join(expected)
    gap = runs[0][1]
    assert longest_copy(text[gap - 30 : gap + 30], training).length == 30


NINE = "one two three, four five\nsix - seven eight nine"
IROHA = "いろはにほへとちりぬるをわかよたれそつねならむうゐのおくやまけふこえてあさきゆめみし"


@pytest.mark.parametrize(
    ("sample", "training", "marked"),
    [
        ("And one two three, four five\nsix - seven eight ended", NINE, [NINE[:-5]]),
        ("one two three four five\nsix - seven eight nine", NINE, []),  # a comma is missing
        (NINE, f"n{NINE}", [NINE[4:]]),  # "none" is another word
        (f"xx{IROHA[3:34]}yy", IROHA, []),  # 31 characters
        (f"xx{IROHA[3:35]}yy", IROHA, [IROHA[3:35]]),
        (
            f"a one two three four {IROHA[:16]} b",
            f"one two three four {IROHA[:17]}",
            [f"one two three four {IROHA[:16]}"],
        ),
    ],
)
def test_copied_passages_of_hand_made_texts(sample: str, training: str, marked: list[str]) -> None:
    assert [sample[begin:end] for begin, end in copied_spans(sample, training)] == marked


def pieces(text: str) -> list[tuple[int, int]]:
    """Words, and characters of a script without spaces."""
    return [match.span() for match in re.finditer(r"[いろ]|[ab]+", text)]


TOKENS = st.lists(st.sampled_from(["a", "b", "ab", " ", ", ", "いろいろいろいろ", "い"]), max_size=70).map("".join)


@given(TOKENS, TOKENS, st.integers(0, 200), st.integers(0, 200))
def test_copied_passages_are_those_of_a_search_of_all(sample: str, training: str, begin: int, end: int) -> None:
    sample += training[min(begin, end) : max(begin, end)]
    known, marks = pieces(training), set[int]()
    runs = {training[known[i][0] : known[j][1]] for i in range(len(known)) for j in range(i, len(known))}
    units = pieces(sample)
    for first, (start, _) in enumerate(units):
        size = 0
        for left, stop in units[first:]:
            size += 4 if sample[left] in "ab" else 1
            if size >= 32 and sample[start:stop] in runs:
                marks |= set(range(start, stop))
    spans = copied_spans(sample, training)
    assert {at for span in spans for at in range(*span)} == marks
    assert all(one[1] < two[0] for one, two in itertools.pairwise(spans))
