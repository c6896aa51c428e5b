"""Write docs/sources.md and docs/pt/sources.md from the claims in sources.toml, and the index of studies: make sources.

Every number comes from a study's results or a page (`docs.make_studies.number`). A claim whose conditions no longer
hold, or whose sentences are long, stops the script, so no verdict outlives its evidence. `pages` needs no matplotlib.
"""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from docs import make_tricks
from docs.make_studies import DOCS as FOLDER
from docs.make_studies import FOLDER as STUDIES
from docs.make_studies import fill, index, number, results, table

PAGES = {"en": "sources.md", "pt": "pt/sources.md"}
WORDS = 30
"""Of a sentence, at most."""
UP = {"en": "", "pt": "../"}
"""From a page to docs."""
OTHER = {
    "en": "**English** · [Português](pt/sources.md)",
    "pt": "[English](../sources.md) · **Português**",
}
TUNED_ONCE, UNTUNED = "†", "‡"
NO_RATE = ("Scores and rows.", "Processor time", "Exponents of the time", "| seconds", "| targets")
"""In the place of a number of a study that no learning rate changes."""


def main() -> None:
    """Write the pages and draw the picture in both languages."""
    for name, page in pages().items():
        (FOLDER / name).write_text(page, encoding="utf-8", newline="\n")
    picture = sources()["picture"]
    for language in PAGES:
        (FOLDER / picture[language]["name"]).write_bytes(_drawn(picture, language))


def pages() -> dict[str, str]:
    """The pages by their names in docs.

    Raises:
        LookupError: a number stands nowhere.
        ValueError: a condition does not hold, a number is not used, or a sentence is long.
    """
    said = sources()
    for each in (*said["sections"], *claims(said)):
        _hold(each)
    made = {name: "\n\n".join(_parts(said, language)) + "\n" for language, name in PAGES.items()}
    return {**made, "studies/README.md": index(), "studies/tricks.md": make_tricks.page()}


def sources() -> dict[str, Any]:
    """What sources.toml says."""
    return tomllib.loads((FOLDER / "sources.toml").read_text(encoding="utf-8"))


def claims(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every claim, in order."""
    return [claim for section in said["sections"] for claim in section.get("claims", ())]


def _hold(each: Mapping[str, Any]) -> None:
    """Refuse a section or a claim of which a condition, "PLACE = WHAT IS PRINTED THERE", does not hold."""
    for condition in each.get("holds", ()):
        where, wanted = condition.rsplit(" = ", 1)
        if (found := number(where)) != wanted:
            raise ValueError(f"{condition!r} does not hold, it is {found!r}: judge again {each['en']}")


def _parts(said: Mapping[str, Any], language: str) -> Iterator[str]:
    """The paragraphs, tables and titles of a page."""
    page, picture = said["page"][language], said["picture"]
    yield f"# {page['title']}"
    yield OTHER[language]
    yield page["text"].strip()
    counts = Counter(claim["verdict"] for claim in claims(said))
    told = verdicts(said, language)
    yield table(page["count"], [(f"**{word}**", means, f"{counts[key]}") for key, (word, means) in told.items()])
    kinds = {section["kind"]: section for section in said["sections"] if "kind" in section}
    lengths = {kind: len(_only(section["rows"])[language]["rows"]) for kind, section in kinds.items()}
    totals = {"claims": len(claims(said)), "right": len(kinds["examples"]["right"]), **lengths}
    alt, text = fill(picture[language]["alt"], picture["numbers"], language), picture[language]["text"].strip()
    yield f"![{alt}]({UP[language]}{picture[language]['name']})\n\n{text}"
    yield page["after"].strip().format_map(totals)
    for section in said["sections"]:
        yield from _section(section, language, page["head"], told)


def verdicts(said: Mapping[str, Any], language: str) -> dict[str, Sequence[str]]:
    """The word of each verdict and what it means."""
    return {each["word"]: each[language] for each in said["verdicts"]}


def _section(
    section: Mapping[str, Any], language: str, head: Sequence[str], words: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    filled = partial(fill, language=language)
    yield f"## {section[language]['title']}"
    if "text" in section[language]:
        yield filled(section[language]["text"].strip(), section.get("numbers", {}))
    if "claims" in section:
        yield table(head, [row(claim, language, words) for claim in section["claims"]])
    for each in section.get("rows", ()):
        rows = table(each[language]["head"], each[language]["rows"])
        yield filled(rows, each["numbers"]) if "numbers" in each else rows
    if "after" in section[language]:
        yield section[language]["after"].strip()


def row(claim: Mapping[str, Any], language: str, words: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """A claim's line: what is said, what was measured, the verdict, where."""
    said, where = claim[language], claim["where"]
    pages = [name for name in where.split(", ") if (STUDIES / f"{name}.md").is_file()]
    link = ", ".join(f"[{name}]({UP[language]}studies/{name}.md)" for name in pages) or where
    verdict = f"**{words[claim['verdict']][0]}**{_marks(claim) * (claim['verdict'] != 'wrong')}"
    if "on" in said:
        verdict += f"{':' * (claim['verdict'] != 'depends')} {said['on']}"
    return f"{said['claim']} ({', '.join(claim['documents'])})", _measured(claim, language), verdict, link


def _measured(claim: Mapping[str, Any], language: str) -> str:
    """The measured sentence of a claim with its numbers, if this and the claim are short."""
    sentence = fill(claim[language]["measured"], claim.get("numbers", {}), language)
    for each in (sentence, claim[language]["claim"]):
        if len(each.split()) > WORDS:
            raise ValueError(f"more than {WORDS} words: {each}")
    return sentence


def _marks(claim: Mapping[str, Any]) -> str:
    """The marks of the studies that a claim has numbers of: of rates chosen by one run each, of rates not tuned."""
    places = [where for where in claim.get("numbers", {}).values() if not any(each in where for each in NO_RATE)]
    names = {where.split(" | ")[0].removeprefix("studies/").removesuffix(".md") for where in places}
    tuned = [results(name)["tuning"] for name in names if (STUDIES / name).is_dir()]
    trials = [trial for study in tuned for arm in study for trial in arm["trials"]]
    once = any(len(trial.get("losses", ())) < 2 for trial in trials)
    return TUNED_ONCE * once + UNTUNED * any(not study for study in tuned)


def _only(found: Sequence[Any]) -> Any:
    (one,) = found
    return one


def _drawn(picture: Mapping[str, Any], language: str) -> bytes:
    """The contrasts as a forest plot."""
    from vitral.core.language import in_language
    from vitral.report.intervals import Row, interval_plot
    from vitral.report.style import drawn_bytes

    rows = []
    for each in picture["rows"]:
        study, name = each["of"].split(" | ")
        label, group = each[language]
        arms = {arm["name"]: arm for arm in results(study)["arms"]}
        claim = _only([one for one in results(study)["claims"] if (one["of"], one["arm"]) == ("losses", name)])
        base, own = ({run["seed"]: run["compared_loss"] for run in arms[arm]["runs"]} for arm in (claim["rival"], name))
        dots = [100 * (own[seed] / base[seed] - 1) for seed in own if seed in base]
        ends = claim["percent"], claim["percent_low"], claim["percent_high"]
        rows.append(Row(label, group, *ends, dots=dots, word=claim["verdict"] or ""))
    with in_language(language):
        return drawn_bytes(interval_plot(rows, picture[language]["axis"], margin=1.0, unit="%"), "svg")


if __name__ == "__main__":
    main()
