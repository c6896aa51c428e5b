"""A `tokenizer.json` of others: ids of the text alone, and one line about what cannot be read."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from foreign import of_form, write_source
from tokenizers import Tokenizer as Engine

from vitral.core.errors import UsageError
from vitral.data import Tokenizer
from vitral.interop.tokenizer_json import read_tokenizer

TEXT = "the cat sat on the mat."
CUT = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}


def filled(length: int, direction: str) -> dict[str, Any]:
    return {
        "strategy": {"Fixed": length},
        "direction": direction,
        "pad_to_multiple_of": None,
        "pad_id": 3,
        "pad_type_id": 0,
        "pad_token": "x",
    }


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A document that Vitral could not have written: it makes letters small."""
    folder = tmp_path_factory.mktemp("tokens") / "source"
    write_source(folder, "gpt2", of_form("gpt2"))
    return json.loads((folder / "tokenizer.json").read_text()) | {"normalizer": {"type": "Lowercase"}}


def read(document: dict[str, Any], folder: Path) -> Tokenizer:
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return read_tokenizer(folder, 256, {})[0]


@pytest.mark.parametrize(
    "habits",
    [
        {"truncation": CUT},
        {"truncation": CUT, "padding": filled(50, "Left")},
        {"padding": filled(10**8, "Right")},
        {"padding": filled(10**12, "Left")},
    ],
)
def test_ids_are_those_of_the_text_alone_here_and_in_an_export(
    habits: dict[str, Any], document: dict[str, Any], tmp_path: Path
) -> None:
    plain, found = read(document, tmp_path), read(document | habits, tmp_path)
    assert plain.name == "file"
    assert found.name == "file"
    ids = plain.encode(TEXT).tolist()
    assert len(ids) > CUT["max_length"]
    assert found.encode(TEXT).tolist() == ids
    assert found.start == plain.start
    assert json.loads(found.data["document"]) == document | habits
    exported = found.document
    assert json.loads(exported) == document
    assert Engine.from_str(exported).encode(TEXT).ids == ids


def charsmap(raw: bytes) -> dict[str, Any]:
    return {"normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(raw).decode()}}


def special(token: Any) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"added_tokens": [{"id": token, "content": "a", "special": True, **flags}]}


BAD: dict[str, dict[str, Any]] = {
    "a table that points out of itself": charsmap(struct.pack("<II", 4, 0xFFFFFFFF)),
    "a word as id": special("abc"),
    "an id of 41 bits": {"model": {"type": "BPE", "vocab": {"a": 1, "b": 1 << 40}, "merges": []}},
}


@pytest.mark.parametrize("damage", BAD)
def test_what_cannot_be_read_is_refused_with_its_path(damage: str, document: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        read(document | BAD[damage], tmp_path)
    assert str(tmp_path / "tokenizer.json") in str(refused.value)
