"""Every sentence for users is marked, has its places filled, and is translated into every language."""

import ast
import string

import pytest
import sentences
from sentences import CATALOGUES, SOURCE, errors, is_sentence, marked, places, translations, trees

from vitral.core import language as languages
from vitral.core.language import LANGUAGES, in_language

OTHERS = [code for code in LANGUAGES if code != "en"]


def specs(sentence: str) -> dict[str, set[tuple[str, str | None]]]:
    """The format and conversion of every place."""
    found: dict[str, set[tuple[str, str | None]]] = {}
    for _, name, spec, conversion in string.Formatter().parse(sentence):
        if name is not None:
            found.setdefault(name, set()).add((spec or "", conversion))
    return found


@pytest.mark.parametrize("code", OTHERS)
def test_every_sentence_is_translated_with_its_places(code: str) -> None:
    """`python tests/house/sentences.py` writes what is new into the catalogues."""
    wanted = sentences.sentences()
    assert {file.stem for file in (CATALOGUES / code).glob("*.po")} == set(wanted)
    for room in wanted:
        there = translations(code, room)
        assert set(wanted[room]) - set(there) == set(), f"{room}: not in the catalogue"
        assert set(there) - set(wanted[room]) == set(), f"{room}: no longer in the code"
        assert [text for text, told in there.items() if not all(told)] == []
        catalogue = (CATALOGUES / code / f"{room}.po").read_text(encoding="utf-8")
        assert catalogue.count("\nmsgid ") == len(there), f"{room}: a sentence twice"  # its header is its first line
        require_places(there)


def require_places(there: dict[sentences.Text, tuple[str, ...]]) -> None:
    for text, told in there.items():
        one, several = (text, text) if isinstance(text, str) else text
        known = specs(one) | specs(several)
        for each in told:
            assert specs(each).items() <= known.items(), each
        assert specs(told[-1]).keys() == specs(several).keys(), told[-1]


def test_every_place_is_filled() -> None:
    wrong = []
    for sentence in marked():
        texts = (sentence.text,) if isinstance(sentence.text, str) else sentence.text
        named = set().union(*map(places, texts))
        if sentence.places and "**" not in sentence.places and named != sentence.places:
            wrong.append((sentence.where, named ^ sentence.places))
    assert wrong == []


def test_no_error_is_an_f_string() -> None:
    """A sentence with its values filled in cannot be translated."""
    raised = errors() | {"ValueError"}
    found = []
    for file, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", None) not in raised or not node.args:
                continue
            if isinstance(node.args[0], ast.JoinedStr):
                words = "".join(
                    v.value for v in node.args[0].values if isinstance(v, ast.Constant) and isinstance(v.value, str)
                )
                found += [f"{file.relative_to(SOURCE)}:{node.lineno}"] if is_sentence(words) else []
    assert found == []


@pytest.mark.parametrize("code", LANGUAGES)
def test_the_empty_sentence_stays_empty(code: str) -> None:
    """In a catalogue the empty sentence is the header."""
    with in_language(code):
        assert languages._("") == ""
