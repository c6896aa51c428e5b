"""The phrasebook: a sentence for every key, in every language, with the field's terms kept."""

import re

import pytest

from vitral.core.errors import UsageError
from vitral.core.language import _, in_language
from vitral.explanation import LANGUAGES, Verdict, phrases
from vitral.explanation.checks.slips import KINDS
from vitral.explanation.phrasebook import catalogue


def translated(key: str, language: str) -> str:
    """The sentence of a key with its places unfilled."""
    with in_language(language):
        return _(catalogue()[key])


def test_the_terms_of_the_field_are_kept() -> None:
    assert len(catalogue()) > 100
    for key, phrase in catalogue().items():
        for term in ("query", "queries", "softmax", "embedding", "logits", "token", "residual"):
            if re.search(rf"\b{term}\b", phrase, re.IGNORECASE):
                stem = {"queries": "quer", "query": "quer", "residual": "res"}.get(term, term[:5])
                assert stem in translated(key, "pt").lower(), (key, term)


def test_every_verdict_and_slip_has_its_words() -> None:
    known = catalogue()
    assert all(f"check.{verdict}" in known for verdict in Verdict if verdict is not Verdict.unknown)
    assert all(any(name.startswith(f"slips.{kind}") for name in known) for kind in KINDS)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_language_is_the_current_one_unless_it_is_named(language: str) -> None:
    told = phrases(language)("page.gap", count=3)
    with in_language(language):
        assert phrases()("page.gap", count=3) == told
    with in_language("en"):
        assert phrases(language)("page.gap", count=3) == told
    assert phrases({"pt": "pt_BR.UTF-8"}.get(language, language))("page.gap", count=3) == told


def test_another_language_is_refused() -> None:
    with pytest.raises(UsageError, match="--lang xy: known: en, pt"):
        phrases("xy")
