import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.core.streams import numpy_stream
from vitral.data import Blocks, CorpusConfig, CorpusReport, corpus_report, load_corpus, prepare, split_text
from vitral.data.report import duplicates_across


def report_on(tmp_path, text: str, context_length: int = 7, batch_size: int = 2, **options: object) -> CorpusReport:
    (tmp_path / "my.txt").write_bytes(text.encode())
    config = CorpusConfig.parse({"source": str(tmp_path / "my.txt"), **options})
    corpus = load_corpus(config)
    dataset = prepare(config, corpus=corpus)
    return corpus_report(dataset, corpus.text, context_length=context_length, batch_size=batch_size)


def words(num_characters: int, alphabet: str = "abcdefgh \n") -> str:
    return "".join(numpy_stream(1, "letters").choice(list(alphabet), size=num_characters).tolist())


CLEAN = words(150_000)


def with_training_text(addition: str) -> str:
    """CLEAN with something put into one of its training blocks."""
    at = list(split_text(len(CLEAN) + len(addition), "blocks")["train"])[3][0] + 7
    return CLEAN[:at] + addition + CLEAN[at:]


def test_a_clean_text_has_no_problems(tmp_path):
    report = report_on(tmp_path, CLEAN)
    assert report.problems == ()
    assert (report.num_characters, report.num_bytes, report.vocab_size) == (150_000, 150_000, 11)
    assert sum(entry.count for entry in report.alphabet) == 150_000
    assert [entry.label for entry in report.alphabet] == ["\\n", "␣", *"abcdefgh"]
    assert report.characters == {"train": 125_000, "validation": 10_000, "test": 15_000}
    assert report.tokens == report.characters
    assert report.lines.num_lines == CLEAN.count("\n") + (not CLEAN.endswith("\n"))
    assert report.batches_per_pass == 125_000 / 14
    assert 0 < report.num_windows < 125_000
    assert report.duplicates.share == 0
    assert json.loads(json.dumps(report.plain())) == report.plain()


@pytest.mark.parametrize(
    ("addition", "fact"),
    [
        ("é" * 9, "fewer than 10 occurrences each: 1 (“é” U+00E9: 9)."),
        ("Ã©" * 20, "In 20 places the text looks like UTF-8"),
        ("\x1b" * 20, "control or invisible characters (“\\x1b” U+001B: 20)."),
        ("\u200b" * 20, "control or invisible characters (“\\u200b” U+200B: 20)."),
        ("\xad\u2028" * 20, "control or invisible characters (“\\xad” U+00AD: 20, “\\u2028” U+2028: 20)."),
        ("a\ufeff" * 20, "control or invisible characters (“\\ufeff” U+FEFF: 20)."),
        ("\ufffd" * 20, "U+FFFD occurs 20 times"),
        ("one\xa0two" * 20, "unusual spaces (“\\xa0” U+00A0: 20)."),
        ("a" * 5_001, "The longest line has 5,0"),
        (
            "é" * 20 + "e\u0301" * 30,
            "30 accented letters are written as a letter and a combining accent, 20 as one character.",
        ),
        ("e\u0301" * 30, "30 accented letters are written as a letter and a combining accent, 0 as one character."),
    ],
    ids=ascii,
)
def test_a_problem_is_found_and_named(tmp_path, addition, fact):
    report = report_on(tmp_path, with_training_text(addition))
    assert any(fact in problem for problem in report.problems)
    assert all(problem.isprintable() and problem.endswith(".") for problem in report.problems)


@pytest.mark.parametrize(
    "needed", ["می\u200cروم ", "क्\u200dष ", "👩\u200d👧❤\ufe0f ", "א\u200f! ", "س\u061c\u06dd٧ ", "　"]
)
def test_joiners_marks_and_spaces_that_a_script_needs_are_no_problem(tmp_path, needed):
    report = report_on(tmp_path, with_training_text(needed * 20))
    assert report.problems == ()
    assert all(entry.label.isprintable() and entry.label != "\ufe0f" for entry in report.alphabet)


@pytest.mark.parametrize("tokenizer", ["char", "byte"])
def test_special_tokens_that_are_spelled_are_offered(tmp_path, tokenizer):
    text = "".join(f"<|startoftext|>{words(97)}<|endoftext|>\n" for _ in range(200))
    notes = " ".join(report_on(tmp_path, text, tokenizer=tokenizer).notes)
    assert "--special '<|startoftext|>' --special '<|endoftext|>'" in notes
    specials = ["<|startoftext|>", "<|endoftext|>"]
    assert "--special" not in " ".join(report_on(tmp_path, text, tokenizer=tokenizer, specials=specials).notes)


def test_a_character_that_training_never_sees_is_named(tmp_path):
    report = report_on(tmp_path, CLEAN + "é" * 20, split="tail")
    assert [entry.code_point for entry in report.unlearnable] == ["U+00E9"]
    assert any("lacks: 1 (“é” U+00E9: 20)" in problem for problem in report.problems)


def test_lines_are_the_same_whether_their_ends_are_kept(tmp_path):
    text = "abc\r\ncd\n" * 15_000
    kept, changed = (report_on(tmp_path, text, newlines=newlines) for newlines in ("keep", "lf"))
    assert kept.lines == changed.lines
    assert (kept.lines.num_lines, kept.lines.longest) == (30_000, 3)
    assert any("15,000 \\r\\n" in note for note in changed.notes)


def test_the_same_page_twice_is_a_duplicate_across_the_split(tmp_path):
    report = report_on(tmp_path, words(50_001) * 2)
    assert report.duplicates.share > 0.9
    assert any("also occur in the training split, for example “" in problem for problem in report.problems)


def test_equal_sequences_of_a_task_are_chance_and_no_leak():
    config = CorpusConfig.parse({"source": "task", "task": {"name": "markov", "concentration": 0.01, "sequences": 500}})
    corpus = load_corpus(config)
    report = corpus_report(prepare(config, corpus=corpus), corpus.text, context_length=64, batch_size=2)
    assert report.duplicates.share > 0.1
    assert report.loss_problems == ()


def test_a_small_text_is_said_to_be_small(tmp_path):
    report = report_on(tmp_path, words(15_000), context_length=100, batch_size=10)
    assert report.batches_per_pass == 5.0
    assert any("only 5.0 batches of 10 windows of 100 tokens" in problem for problem in report.problems)
    assert any("The test split has only 5,000 tokens" in problem for problem in report.problems)


def test_a_text_without_one_window_is_reported_not_refused(tmp_path):
    report = report_on(tmp_path, words(15_000), context_length=5_000)
    assert report.num_windows == 0
    assert "needs 5,001 tokens in a row" in report.problems[0]


def test_one_character_is_a_problem_and_thousands_are_none(tmp_path):
    alone = report_on(tmp_path, "x" * 20_000)
    assert any("a single character" in problem for problem in alone.problems)
    many = report_on(tmp_path, "".join(chr(0x4E00 + index % 1_500) for index in range(60_000)))
    assert len(many.alphabet) == 1_500
    assert not any("tokenizer" in problem for problem in many.problems)  # measured: docs/internals/experiments.md


def spans(*blocks):
    return Blocks(np.array(blocks))


@given(st.text("ab ", min_size=30, max_size=120), st.integers(1, 13))
def test_share_and_example_are_of_the_windows_that_begin_at_a_word(text, length):
    third = len(text) // 3
    train, test = [(0, third), (2 * third, len(text))], [(third, 2 * third)]

    def windows(parts):
        pieces = [text[begin:end] for begin, end in parts]
        starts = [
            (piece, at)
            for piece in pieces
            for at in range(len(piece) - length + 1)
            if piece[at] != " " and (at == 0 or piece[at - 1] == " ")
        ]
        return [piece[at : at + length] for piece, at in starts]

    known, asked = set(windows(train)), windows(test)
    twice = [window for window in asked if window in known]
    result = duplicates_across(text, {"train": spans(*train), "test": spans(*test)}, length)
    assert result.share == pytest.approx(len(twice) / max(1, len(asked)))
    assert result.example == (twice[0] if twice else "")
