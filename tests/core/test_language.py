"""Messages: English as text and in files, the reader's language where they are shown."""

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.core.errors import LONGEST, StorageError, TrainingStopped, UsageError, reason
from vitral.core.language import LANGUAGES, N_, Message, _, in_language, restored, storable

OTHERS = [code for code in LANGUAGES if code != "en"]
INNER = N_("the loss is {loss}").format(loss=2.5)
OUTER = N_("stopped after step {step}: {culprit}").format(step=1200, culprit=INNER)


@pytest.mark.parametrize("code", OTHERS)
def test_a_message_is_english_text_and_is_shown_in_the_readers_language(code: str) -> None:
    with in_language(code):
        assert OUTER == "stopped after step 1200: the loss is 2.5"
        inner = _("the loss is {loss}", loss=2.5)
        assert _(OUTER) == _("stopped after step {step}: {culprit}", step=1200, culprit=inner)
        assert "2,5" in _(OUTER)
        assert _("note: {text}", text=OUTER).endswith(_(OUTER))
        assert f"a: {_(N_('{path}: not a link').format(path='a').removeprefix('a: '))}" == _(N_("a: not a link"))


def test_a_message_keeps_its_values() -> None:
    data = {"notes": ["a file's own words", OUTER], "n": 1}
    for result in (copy.deepcopy(data), pickle.loads(pickle.dumps(data)), read(data)):
        assert result == data
        with in_language("pt"):
            assert [_(note) for note in result["notes"]] == ["a file's own words", _(OUTER)]


def read(data: dict[str, Any]) -> dict[str, Any]:
    written = json.loads(json.dumps(storable(data)))
    assert written["notes"][1] == str(OUTER)
    return restored(written)


def test_without_messages_a_file_has_no_table_and_an_older_one_is_english() -> None:
    assert storable({"a": [N_("train"), "b"]}) == {"a": ["train", "b"]}
    with in_language("pt"):
        assert _(restored({"text": str(OUTER)})["text"]) == OUTER


@pytest.mark.parametrize("code", OTHERS)
def test_an_error_is_told_in_the_language_in_which_it_is_shown(code: str) -> None:
    error = UsageError("{path}: cannot be read ({reason})", path="runs/a", reason="x")
    outer = TrainingStopped("stopped after step {step}: {culprit}", step=3, culprit=error)
    said = str(outer), str(error)
    with in_language(code):
        assert (str(error), str(outer)) == (_(reason(error)), _(reason(outer)))
        assert str(error) not in said
        assert str(error) in str(outer)
    assert (str(outer), str(error)) == said
    assert isinstance(reason(StorageError("full")), Message)
    assert reason(OSError(28, "No space left on device", "a")) == "No space left on device"
    assert reason(ValueError("foreign")) == "foreign"


@given(st.text(max_size=2 * LONGEST))
def test_an_error_is_one_printable_line_whatever_it_quotes(quoted: str) -> None:
    for kind in (UsageError, StorageError, TrainingStopped):
        told = str(kind("{path}: cannot be read", path=quoted))
        assert told.isprintable()
        assert len(told) <= LONGEST + 3
