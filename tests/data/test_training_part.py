"""Less of the text, parts of it, or more than it to train on: the split stays, and so does everything unasked."""

import numpy as np
import pytest

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data import CorpusConfig, prepare

NUM_BLOCKS = 40
BLOCK = 5_000


def numbered(path, mark="", num_blocks=NUM_BLOCKS):
    """A text each block of which is one line, so many times its own number."""
    lines = []
    for number in range(num_blocks):
        words = numpy_stream(7, mark, number).choice(["one", "two", "three"], size=900).tolist()
        lines.append((f"{mark}{number:04d} " + " ".join(words)).ljust(BLOCK - 1, ".")[: BLOCK - 1] + "\n")
    text = "".join(lines)
    path.write_text(text, encoding="utf-8", newline="\n")
    return text


@pytest.fixture
def text(tmp_path):
    return numbered(tmp_path / "my.txt", "#")


def dataset(tmp_path, **options):
    return prepare(CorpusConfig.parse({"source": str(tmp_path / "my.txt"), **options}))


def decoded(data, part="train"):
    return data.tokenizer.decode(data.splits[part].tokens)


def numbers(data, mark="#"):
    """Which blocks of a numbered text are in the training part."""
    return {line[1:5] for line in decoded(data).split("\n") if line.startswith(mark)}


def test_the_fingerprint_of_a_known_text_is_the_one_it_always_had(tmp_path):
    (tmp_path / "my.txt").write_text("to be or not to be\n" * 1_000, encoding="utf-8", newline="\n")
    plain = dataset(tmp_path, share=1, also=[])
    assert plain.fingerprint == "eb38e92e25d1dd82af2277b9a6ee9cae"
    assert {"share", "also"}.isdisjoint(plain.config.plain())
    assert "trained_on" not in plain.describe()


def test_a_smaller_share_lies_in_a_larger_one_and_the_rest_is_untouched(tmp_path, text):
    whole = dataset(tmp_path)
    kept = [numbers(dataset(tmp_path, share=share)) for share in (1 / 32, 1 / 8, 1 / 4, 1 / 2)]
    assert [len(some) for some in kept] == [1, 4, 8, 17]  # of 34
    assert all(small < large for small, large in zip(kept, [*kept[1:], numbers(whole)], strict=True))
    begins = dataset(tmp_path, share=1 / 2).splits["train"].segments[:, 0]
    assert np.all(np.diff(begins) > 0)
    for part in ("validation", "test"):
        for share in (1 / 32, 1 / 2):
            less = dataset(tmp_path, share=share).splits[part]
            assert np.array_equal(less.tokens, whole.splits[part].tokens)
            assert np.array_equal(less.segments, whole.splits[part].segments)


def test_a_further_text_is_trained_on_and_never_tested_on(tmp_path, text):
    other = numbered(tmp_path / "other.txt", "é", num_blocks=7)
    whole, more = dataset(tmp_path), dataset(tmp_path, also=[str(tmp_path / "other.txt")])
    assert decoded(more) == decoded(whole) + other
    alphabets = [data.tokenizer.plain()["tokens"][1:] for data in (whole, more)]
    assert alphabets[1] == sorted({*alphabets[0], "é"})
    for part in ("validation", "test"):
        assert decoded(more, part) == decoded(whole, part)
    segments = more.splits["train"].segments
    assert segments[-1].tolist() == [len(decoded(whole)), len(decoded(whole)) + len(other)]
    half = dataset(tmp_path, also=[str(tmp_path / "other.txt")], share=0.5)
    assert numbers(half) == numbers(dataset(tmp_path, share=0.5))  # as without the other
    assert len(numbers(half, "é")) == 4
    (entry,) = more.describe()["trained_on"]["also"]
    assert (entry["name"], entry["characters"], entry["training_characters"]) == ("other.txt", len(other), len(other))


def test_every_key_has_its_place_in_the_fingerprint(tmp_path, text):
    (tmp_path / "other.txt").write_text("something else " * 400, encoding="utf-8")
    options = [
        {},
        {"split": "tail"},
        {"tokenizer": "char"},
        {"share": 0.5},
        {"share": 0.25},
        {"also": [str(tmp_path / "other.txt")]},
        {"also": [str(tmp_path / "other.txt")], "share": 0.5},
    ]
    result = [dataset(tmp_path, **{"tokenizer": "byte", **option}).fingerprint for option in options]
    (tmp_path / "my.txt").write_text(text + "!", encoding="utf-8")
    result.append(dataset(tmp_path, tokenizer="byte").fingerprint)
    assert len(set(result)) == len(options) + 1


def test_what_does_not_fit_the_text_is_one_line(tmp_path, text):
    wrong = {
        "is in the main text": {"also": [str(tmp_path / "my.txt")]},
        "no such name, file or folder": {"also": ["nowhere"]},
    }
    for message, options in wrong.items():
        with pytest.raises(UsageError) as error:
            dataset(tmp_path, tokenizer="byte", **options)
        assert message in str(error.value)
