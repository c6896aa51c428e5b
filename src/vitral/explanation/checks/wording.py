"""A supposed slip in words: alone, with "probably", or two candidates."""

from collections.abc import Callable

from vitral.explanation.checks.slips import Slip
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.rows.base import CellNamer
from vitral.explanation.sheet import Sheet


def slip_words(slip: Slip, at: str, expected: str, names: tuple[CellNamer, Sheet], say: Phrases) -> str:
    """The slip as a phrase.

    Args:
        slip: the slip.
        at: the quantity whose number is wrong; another step is named.
        expected: the true number, as printed.
        names: names of cells, and the computation.
        say: the phrases.
    """
    first = _one(slip, at, expected, names, say)
    if slip.other is not None:
        return say("slips.or", slip=first, other=_one(slip.other, at, expected, names, say))
    return first if slip.sure else say("slips.probably", slip=first)


def _one(slip: Slip, at: str, expected: str, names: tuple[CellNamer, Sheet], say: Phrases) -> str:
    namer, computed = names
    how = f"_{slip.places['how']}" if "how" in slip.places else ""
    words = say(f"slips.{slip.kind}{how}", **_places(slip, expected, (namer.first, computed.conventions.turned), say))
    return words if slip.step == at or slip.step not in computed else say("slips.at", slip=words, step=slip.step)


def _places(slip: Slip, expected: str, names: tuple[int, Callable[[str], bool]], say: Phrases) -> dict[str, object]:
    """The placeholders of a slip's phrase; rows, terms and heads are counted as the sheet counts."""
    first, turned = names
    places: dict[str, object] = {"expected": expected, **slip.places}
    for name in ("term", "head", "other"):
        if name in places:
            places[name] = int(str(places[name])) + first
    row, index, used = places.get("row"), places.get("index"), places.get("used")
    if isinstance(row, tuple):
        places["row"] = f"{row[0]}[{':,' if turned(str(row[0])) else ''}{row[1] + first}]"
    if isinstance(index, tuple):
        places["cell"] = f"{places['table']}[{','.join(str(place + first) for place in index[-2:])}]"
    if isinstance(used, float):
        places["used"] = say.number(f"{used:g}").replace("-", "−")
    return places
