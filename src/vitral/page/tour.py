"""The tour of a page: stops that lead a reader along it, as TOML that a lecturer can write as well.

A stop highlights one thing, says one thing, and may wait for an act of the reader. The file is read and checked here;
`web/src/page/tour.ts` does what it says. docs/page.md says how to write one.
"""

import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl

from pydantic import AfterValidator, Field

from vitral.core.config import Config, nearest, read_toml
from vitral.core.language import _

OWN = Path(__file__).with_name("tour.toml")
"""The tour that a page has where nobody gives another."""
PARTS = (
    "sentence, gaps, labels, surprise, alignment, encoder, overview, parts, heads, head, numbers, stream, lens, "
    "rather, choice, candidates, filters, draw, going-on, ahead, worked, readers, worth, about"
)
"""What a stop can highlight."""
ACTS = (
    "text changed, token guessed, token chosen, part off, attention off, changes undone, head chosen, previous head, "
    "worked through, cell opened, temperature changed, token drawn"
)
"""What a stop can wait for."""
PLACES = "guess, unchanged, expected, last, head, heads"
"""What a sentence can say of the model as it is now, in braces."""
NUMBERS = "b, few, h, k, long, m, more, n, p, q, r, t, terms, u, w"
KEYS = f"text, a, beam, c, cross, d, e, hide, i, j, l, o, rather, s, source, v, x, y, z, {NUMBERS}"
"""Keys of a page's address that a stop can set (web/src/page/state.ts); `NUMBERS` have a number or nothing."""
LEFT_OUT = ("g", "f")
"""Keys of a copied address that a stop does not set: where the tour is, and the figure that stands alone."""


def _known(name: str, names: str) -> str:
    known = names.split(", ")
    if name not in known:
        raise ValueError(_("{name!r} is not known here, {hint}", name=name, hint=nearest(name, known)))
    return name


def _said(text: str) -> str:
    for name in re.findall(r"\{(.*?)\}", text):
        _known(name, PLACES)
    return text


def _address(text: str) -> str:
    kept = "&".join(each for each in text.split("&") if each.partition("=")[0] not in LEFT_OUT)
    for key, value in parse_qsl(kept, keep_blank_values=True):
        if _known(key, KEYS) in NUMBERS.split(", ") and not re.fullmatch(r"(-1|\d+(\.\d+)?(e-\d+)?)?", value):
            raise ValueError(_("the page reads no {key}={value}", key=key, value=value))
    return kept


Said = Annotated[str, Field(min_length=1), AfterValidator(_said)]


class Stop(Config):
    """One stop.

    Attributes:
        title: a few words.
        sentence: what to do, or to see. `code` and *emphasis* are written as in Markdown; anything else is text.
        highlight: the part of the page that it speaks of.
        address: keys of the page's address that the stop sets; everything else stays as the reader has it.
        wait: the act that it waits for; if None, none.
        then: what there is to see, and why it matters, once the act has happened.
    """

    title: Said
    sentence: Said
    highlight: Annotated[str, AfterValidator(partial(_known, names=PARTS))]
    address: Annotated[str, AfterValidator(_address)] = ""
    wait: Annotated[str, AfterValidator(partial(_known, names=ACTS))] | None = None
    then: Said | None = None


class Tour(Config):
    """A tour: its stops in their order."""

    stops: Annotated[tuple[Stop, ...], Field(strict=False, min_length=1)]


StopData = dict[str, Any]
Stops = list[StopData] | None
"""The stops of a tour as plain data; None is Vitral's own tour."""


def stops_of(path: Path = OWN) -> list[StopData]:
    """The stops of a tour as a page has them (`Stop` in web/src/page/tour.ts).

    Raises:
        UsageError: the file cannot be read, or a stop of it is wrong: names the stop and the key.
    """
    return [stop.plain() for stop in Tour.parse(read_toml(path), str(path)).stops]
