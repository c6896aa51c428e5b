"""A page as one HTML file: no network, one script and one style that its policy knows by their hashes, and data.

The data are JSON in ASCII and base64, in elements that no browser runs; `<` is escaped, so that no text of the user's
can end such an element. A seal has the SHA-256 of each, and the page refuses to open where one differs.
"""

import base64
import hashlib
import html
import json
import tomllib
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from vitral.core.files import sha256
from vitral.core.language import LANGUAGES, _, in_language, language
from vitral.core.text import visible

if TYPE_CHECKING:
    from vitral.page.content import PageContent
    from vitral.page.tour import Stops

SCRIPT, STYLE = "page.js", "page.css"
BESIDE = "-2"
"""Ends the names of the parts of the model beside."""
SERVER = "'self'"
"""Where a served page may fetch from."""
NOWHERE = "'none'"
_SHELL = """<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main id="page"><noscript><p>{without_script}</p></noscript><p id="old">{old}</p></main>
{data}
<script>{script}</script>
</body>
</html>
"""


def page_document(content: "PageContent", tour: "Stops" = None) -> str:
    """The whole page, as text of ASCII characters and those of the script and the style.

    Args:
        content: what it carries.
        tour: the stops of its tour (`vitral.page.tour`); Vitral's own if None.
    """
    names = [each.about["name"] for each in (content, content.beside) if each is not None]
    return _document(" · ".join(["Vitral", *names]), parts_of(content, tour))


def served_document(tour: "Stops" = None) -> str:
    """The page of a server on this machine: it holds nothing of a run, and asks for everything with its token.

    In English it has the English words only: reading the catalogues takes longer than all else.
    """
    known = ["en"] if language() == "en" else []
    return _document("Vitral", {"words": as_text(words(*known)), "tour": as_text(tour or own_stops())}, SERVER)


def served_policy() -> str:
    """The policy of a server's answers, as a header; no page may frame them."""
    return policy(SERVER) + "; frame-ancestors 'none'"


def _document(title: str, parts: dict[str, str], connect: str = NOWHERE) -> str:
    return _SHELL.format(
        language=language(),
        policy=policy(connect),
        title=html.escape(visible(title)),
        without_script=html.escape(_("This page computes its numbers itself and needs JavaScript.")),
        old=html.escape(_("If this line stays, the browser is too old for this page or the file is damaged.")),
        style=asset(STYLE),
        script=asset(SCRIPT),
        data="\n".join(_element(name, text) for name, text in parts.items()),
    )


def parts_of(content: "PageContent", tour: "Stops" = None) -> dict[str, str]:
    """The data elements by name, and the seal with their SHA-256; the second `about` has what the first has not."""
    parts = _model(content) | {"words": as_text(words()), "tour": as_text(tour or own_stops())}
    if content.beside is not None:
        first, second = content.about, content.beside.about
        about = {key: None for key in first if key not in second}
        about |= {key: value for key, value in second.items() if first.get(key) != value}
        beside = _model(replace(content.beside, about=about))
        parts |= {name + BESIDE: text for name, text in beside.items()} | {"relation": as_text(content.relation)}
    return parts | {"seal": as_text({name: sha256(text.encode("ascii")) for name, text in parts.items()})}


def _model(content: "PageContent") -> dict[str, str]:
    return {
        "about": as_text(content.about),
        "graph": as_text(content.graphs),
        "weights": base64.b64encode(content.weights).decode("ascii"),
        "checks": as_text(content.checks.sentences),
        "truth": base64.b64encode(content.checks.truth).decode("ascii"),
        **({"film": as_text(content.film)} if content.film else {}),
    }


def own_stops() -> list[dict[str, Any]]:
    """The stops of Vitral's own tour: as `vitral.page.tour.stops_of`, which checks them, without importing pydantic."""
    file = resources.files("vitral.page") / "tour.toml"
    stops = tomllib.loads(file.read_text("utf-8"))["stops"]
    return [{"address": "", "wait": None, "then": None} | each for each in stops]


def asset(name: str) -> str:
    """A built file of the front-end, without what would end its element."""
    return resources.files("vitral.page").joinpath("assets", name).read_text(encoding="utf-8")


def policy(connect: str) -> str:
    """The content security policy: script and style by their hashes, images that the page makes itself.

    A page that computes its numbers itself may also run its script once more, as a worker.

    Args:
        connect: where the page may fetch from.
    """
    return (
        f"default-src 'none'; script-src '{_hash(SCRIPT)}'; style-src '{_hash(STYLE)}'; img-src data: blob:; "
        f"connect-src {connect}; worker-src {'blob:' if connect == NOWHERE else NOWHERE}; "
        "base-uri 'none'; form-action 'none'"
    )


def as_text(data: Any) -> str:
    """Plain data as JSON in ASCII for an element of a page: no `<`, no line separators, surrogates escaped."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _hash(name: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(asset(name).encode("utf-8")).digest()).decode("ascii")


def _element(name: str, text: str) -> str:
    kind = "application/json" if text[:1] in "{[" else "application/octet-stream"
    return f'<script type="{kind}" id="{name}">{text}</script>'


@cache
def sentences() -> tuple[str, ...]:
    """The front-end's sentences in English.

    `make web` collects them from web/src/page and from Vitral's own tour into a file with one sentence a line; the
    script has their places in it.
    """
    return tuple(asset("sentences.txt").splitlines())


def words(*codes: str) -> dict[str, list[str]]:
    """The front-end's sentences in these languages, or in all.

    Args:
        codes: the languages. English alone needs no catalogue.
    """
    told: dict[str, list[str]] = {}
    for code in codes or LANGUAGES:
        with in_language(code):
            told[code] = [_(sentence) for sentence in sentences()]
    return told
