"""The catalogue: every phrase in every language, with the same places, and the field's terms kept."""

import re
import string

import pytest

from vitral.core.errors import UsageError
from vitral.explanation import LANGUAGES, Verdict, phrases
from vitral.explanation.checks.slips import KINDS
from vitral.explanation.phrasebook import catalogue


def places(phrase: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(phrase) if name}


def test_no_phrase_is_missing_in_one_language() -> None:
    english, portuguese = catalogue("en"), catalogue("pt")
    assert set(english) == set(portuguese)
    assert len(english) > 100


@pytest.mark.parametrize("key", catalogue("en"))
def test_a_phrase_has_the_same_places_in_every_language(key: str) -> None:
    assert len({frozenset(places(catalogue(language)[key])) for language in LANGUAGES}) == 1
    assert all(catalogue(language)[key].strip() for language in LANGUAGES)


def test_the_terms_of_the_field_are_kept() -> None:
    for key, phrase in catalogue("en").items():
        for term in ("query", "queries", "softmax", "embedding", "logits", "token", "residual"):
            if re.search(rf"\b{term}\b", phrase, re.IGNORECASE):
                translated = catalogue("pt")[key].lower()
                stem = {"queries": "quer", "query": "quer", "residual": "res"}.get(term, term[:5])
                assert stem in translated, (key, term)


def test_every_verdict_and_slip_has_its_words() -> None:
    known = catalogue("en")
    assert all(f"check.{verdict}" in known for verdict in Verdict if verdict is not Verdict.unknown)
    assert all(any(name.startswith(f"slips.{kind}") for name in known) for kind in KINDS)


def test_another_language_is_refused() -> None:
    with pytest.raises(UsageError, match="--lang xy: known: en, pt"):
        phrases("xy")
