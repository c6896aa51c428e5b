"""The phrasebook: a sentence for every key, in every language, with the field's terms kept."""

import re

from vitral.core.language import _, in_language
from vitral.explanation import Verdict
from vitral.explanation.checks.slips import KINDS
from vitral.explanation.phrasebook import catalogue


def translated(key: str, language: str) -> str:
    """The sentence of a key with its places unfilled."""
    with in_language(language):
        return _(catalogue()[key])


def test_the_terms_of_the_field_are_kept() -> None:
    for key, phrase in catalogue().items():
        for term in ("query", "queries", "softmax", "embedding", "logits", "token", "residual"):
            if re.search(rf"\b{term}\b", phrase, re.IGNORECASE):
                stem = {"queries": "quer", "query": "quer", "residual": "res"}.get(term, term[:5])
                assert stem in translated(key, "pt").lower(), (key, term)


def test_every_verdict_and_slip_has_its_words() -> None:
    known = catalogue()
    assert all(f"check.{verdict}" in known for verdict in Verdict if verdict is not Verdict.unknown)
    assert all(any(name.startswith(f"slips.{kind}") for name in known) for kind in KINDS)
