"""JSON lines: one field of each line is a text; what is not so is refused with its line."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.core.errors import UsageError
from vitral.data import CorpusConfig, load_corpus
from vitral.data.texts import decode_document

TEXT = CorpusConfig(newlines="keep", field="text", separator="<|>")
# What the standard library reads as JSON and UTF-8 can write.
VALUES = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.lists(VALUES, max_size=8), st.booleans(), st.sampled_from(["\n", "\r\n", "\n\n \n"]), st.booleans())
def test_what_is_written_as_json_lines_comes_back(values: list[str], ascii: bool, newline: str, marked: bool) -> None:
    lines = [
        json.dumps({"n": float("nan"), "text": value, "more": {"text": "x"}}, ensure_ascii=ascii) for value in values
    ]
    document = decode_document((("\ufeff" if marked else "") + newline.join(lines)).encode(), "x", TEXT)
    assert document.text == "<|>".join(value for value in values if value)
    assert (document.changes["texts"], document.changes["empty"]) == (len(values), values.count(""))


def test_each_item_of_a_list_is_a_text() -> None:
    chat = {"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]}
    raw = "\n".join(map(json.dumps, (chat, {"messages": []}, {"messages": [{"content": "three"}]}))).encode()
    document = decode_document(raw, "x.jsonl", CorpusConfig(field="messages.content"))
    assert (document.text, document.changes["texts"]) == ("one\n\ntwo\n\nthree", 3)
    assert decode_document(b'{"a": ["one", "two"]}', "x", CorpusConfig(field="a")).text == "one\n\ntwo"


def test_newlines_inside_a_text_are_changed_and_the_licence_is_kept() -> None:
    licence = "*** START OF THE BOOK ***\nthe work\n*** END OF THE BOOK ***\n"
    raw = "\n".join(json.dumps({"text": text}) for text in ("a\r\nb\rc", licence))
    document = decode_document(raw.encode(), "x", CorpusConfig(field="text"))
    assert document.text == f"a\nb\nc\n\n{licence}"
    assert (document.changes["crlf"], document.changes["cr"]) == (1, 1)


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("text", "not a JSON object"),
        ('{"text": "a"} {}', "not a JSON object"),
        (f'{{"text": {DEEP}}}', "not a JSON object"),
        ("{}", "it has no texts"),
        ('{"txt": "a", "id": "b"}', "did you mean 'txt'?"),
        ('{"text": 1, "other": "b"}', "no text in 'text'; known: other"),
        ('{"text": null}', "no text in 'text'"),
        ('{"text": ["a", 1]}', "no text in 'text'"),
        ('{"text": "\\ud800"}', "no text in 'text'"),
    ],
)
def test_a_wrong_line_is_named(line: str, expected: str) -> None:
    with pytest.raises(UsageError) as error:
        decode_document(f'{{"text": "fine"}}\n\n{line}\n'.encode(), "x.jsonl", TEXT)
    message = str(error.value)
    assert message.startswith("x.jsonl: line 3: ")
    assert expected in message


def write(path: Path, *values: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"id": "7", "text": value}) + "\n" for value in values), encoding="utf-8")
    return path


def test_without_a_field_the_lines_are_text_and_the_fields_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", "one", "two")
    corpus = load_corpus(CorpusConfig(source=str(path)))
    assert corpus.text == path.read_text(encoding="utf-8")
    assert any("--field" in note and "'id', 'text'" in note for note in corpus.notes)
    chosen = load_corpus(CorpusConfig(source=str(path), field="text"))
    assert chosen.text == "one\n\ntwo"
    assert any("JSON lines: 2" in note for note in chosen.notes)
