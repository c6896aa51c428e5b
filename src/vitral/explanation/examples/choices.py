"""Claims about the choice of the next token: greedy, temperature, top-k, top-p, min-p and beam search."""

import math
from collections.abc import Mapping

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.examples.given import BEAM, Given, Values
from vitral.explanation.recipe import RecipeLine, chosen, follow, missing_for
from vitral.explanation.rows.choices import Beam, Filtered, Greedy
from vitral.explanation.sheet import SheetQuantity

RULES = ("temperature", "top_k", "top_p", "min_p")
MOST_BEAMS = 32
"""Largest number of beams and largest length of a beam search."""


def choice(given: Given, key: str, values: Values, lines: Mapping[str, RecipeLine]) -> tuple[SheetQuantity, ...]:
    """The quantity of a claimed choice, such as greedy or top_k_2; none for other keys."""
    rule, number = key.rpartition("_")[::2]
    row: Filtered | Greedy | Beam
    if key == "greedy":
        _need(given, "probabilities", key, values, lines)
        row = Greedy()
    elif rule in RULES:
        _need(given, "probabilities", key, values, lines)
        row = _filtered(given, key, rule, number)
    elif key in ("beam", "beam_probability"):
        _need(given, "next", key, values, lines)
        row = _beam(given, key)
    else:
        return ()
    try:
        return follow(iter([chosen(key, row)]), values)
    except UsageError as error:
        raise given.refuse(f"{key}: {str(error).rpartition(': ')[2]}", "claimed", key) from None


def _filtered(given: Given, key: str, rule: str, number: str) -> Filtered:
    if isinstance(given.head.claimed[key], dict):
        complaint = _('{key}: a key with a point needs quotes, as "temperature_0.5" = […]', key=key)
        raise given.refuse(complaint, "claimed", key)
    try:
        if math.isfinite(float(number)):
            return Filtered(rule, float(number))
    except ValueError:
        pass
    raise given.refuse(_("{name}: {value!r} is not a number", name=key, value=number), "claimed", key)


def _beam(given: Given, key: str) -> Beam:
    found = given.head.given
    for name in BEAM:
        if name not in found:
            raise given.missing(key, name, "claimed", key)
    counts = [found["beams"], found["length"]]
    if any(isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_BEAMS for count in counts):
        complaint = _("beams and length: expected whole numbers from 1 to {most}", most=MOST_BEAMS)
        raise given.refuse(complaint, "given", "beams")
    start = given.word(found["start"], given.head.vocabulary, "given", "start")
    return Beam(start, counts[0], counts[1], probability=key == "beam_probability")


def _need(given: Given, name: str, key: str, values: Values, lines: Mapping[str, RecipeLine]) -> None:
    missing = missing_for(name, lines, values)
    if missing and name == "probabilities" and given.stream not in values:
        missing = _("probabilities (or logits)")
    if missing:
        raise given.missing(key, missing, "claimed", key)
