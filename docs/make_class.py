"""Make what a class needs of a lesson into build/class-N: make class LESSON=3 STUDENTS=20 CLASS_LANG=pt.

slides.html is for the projector; sheets has a sheet for each student, with their keys in sheets/keys; page.html is the
page of the lesson's tour. All three come from the lesson as it stands in docs/course: from its text and its commands.
"""

import base64
import mimetypes
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import jinja2
from markdown_it import MarkdownIt

from docs.make_course import DOCS, FOLDERS, LESSONS

ROOT = DOCS.parent
HELP = {
    "en": "← → screens · n the whole text",
    "pt": "← → telas · n o texto inteiro",
}
PARAGRAPH = re.compile(r"<p>((?:(?!</p>).)*)</p>", re.DOTALL)
SHORT = 150
"""Characters of a paragraph that a slide has room for beside the first."""
READ, PAGE, HAND, TRAIN, QUESTIONS, SOURCES = range(6)
"""The parts of a lesson, each below a heading of the second level."""


def parts(markdown: str) -> list[str]:
    """The parts of a lesson, without what is above the first."""
    return re.split(r"^(?=## )", markdown, flags=re.MULTILINE)[1:]


def commands(markdown: str) -> Iterator[list[str]]:
    """The words of every command of a part."""
    for block in re.findall(r"^```sh\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            yield shlex.split(line, comments=True)


def slides(page: Path, language: str) -> str:
    """A lesson as one HTML file for the projector: a screen for each heading, of what is read some paragraphs."""
    markdown = page.read_text(encoding="utf-8")
    html = (
        MarkdownIt("commonmark")
        .enable("table")
        .render(
            _without_comments(re.sub(r"^(\*\*English\*\*|\[English\]|Run the|Rode os).*$", "", markdown, flags=re.M))
        )
    )
    html = re.sub(r'src="([^":]+)"', lambda found: f'src="{_embedded(page.parent / found[1])}"', html)
    html = re.sub(
        r"(?:<table>(?:(?!</table>).)*</table>\s*){2,}", r'<div class="tables">\g<0></div>', html, flags=re.DOTALL
    )
    screens = re.split(r"(?=<h[123]>)|(?=<p><strong>[123]\.</strong>)", html)[1:]
    last = next(place for place, each in enumerate(screens) if each.startswith("<h2>") and place > 2)
    screens[1:last] = map(_shortened, screens[1:last])
    title = re.sub(r"<.*?>", "", screens[0].partition("</h1>")[0])
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    template = environment.from_string((LESSONS / "slides.html.jinja").read_text(encoding="utf-8"))
    return template.render(language=language, title=title, screens=screens, help=HELP[language])


def _without_comments(markdown: str) -> str:
    """A lesson whose commands have no comments beside them."""
    return re.sub(
        r"^```sh\n.*?^```$",
        lambda found: re.sub(r"(?:^| +)# .*$", "", found[0], flags=re.M),
        markdown,
        flags=re.M | re.S,
    )


def _shortened(screen: str) -> str:
    """A screen that shows of its paragraphs the first, those that lead to a table or a formula, and the short ones.

    The others are there whole, for `n`.
    """
    first = screen.find("<p>")

    def shown(found: re.Match[str]) -> str:
        text = re.sub(r"<.*?>", "", found[1]).strip()
        is_kept = found.start() == first or text.endswith(":") or len(text) <= SHORT or "<img" in found[1]
        return found[0] if is_kept else f'<p class="more">{found[1]}</p>'

    return PARAGRAPH.sub(shown, screen)


def _embedded(picture: Path) -> str:
    kind = mimetypes.guess_type(picture)[0]
    return f"data:{kind};base64,{base64.b64encode(picture.read_bytes()).decode()}"


def prepared(page: Path, folder: Path, language: str, students: int) -> Iterator[list[str]]:
    """The commands that make a lesson's sheets and page, as they stand in it but for where they write."""
    told = parts(page.read_text(encoding="utf-8"))
    exercises = [words for words in commands(told[HAND]) if words[:2] == ["vitral", "exercise"]]
    for words in exercises:
        kind = "sheets" if len(exercises) == 1 else f"sheets-{words[2]}"
        yield [
            *words[: words.index("--out")],
            "--count",
            f"{students}",
            "--out",
            f"{folder / kind}",
            "--lang",
            language,
        ]
    for words in commands(told[PAGE]):
        if words[:2] == ["vitral", "train"] and not (ROOT / words[words.index("--out") + 1]).exists():
            yield words
        if words[:2] == ["vitral", "bundle"]:
            yield [*words[: words.index("-o")], "-o", f"{folder / 'page.html'}", "--lang", language]


def refuse(name: str, given: str, expected: str) -> NoReturn:
    """End with one line that says which value of make class is wrong, and which are right."""
    print(f"make class: {name}={given}: expected {expected}", file=sys.stderr)
    sys.exit(2)


def main(lesson: str, language: str = "en", students: str = "20") -> None:
    """Write a lesson's folder, which must not be there yet."""
    if language not in FOLDERS:
        refuse("CLASS_LANG", language, " or ".join(FOLDERS))
    pages = {str(int(page.name[:2])): page for page in FOLDERS[language].glob("[0-9][0-9]-*.md")}
    if (page := pages.get(lesson.lstrip("0"))) is None:
        refuse("LESSON", lesson, f"1 to {len(pages)}")
    if not students.isdecimal() or not 1 <= int(students) <= 1000:
        refuse("STUDENTS", students, "1 to 1000")
    folder = ROOT / "build" / f"class-{int(lesson)}"
    if folder.exists():
        print(f"make class: {folder.relative_to(ROOT)}: exists already; rename or delete it", file=sys.stderr)
        sys.exit(2)
    folder.mkdir(parents=True)
    (folder / "slides.html").write_text(slides(page, language), encoding="utf-8", newline="\n")
    own = DOCS / "course" / "sheets" / f"{int(lesson):02}.toml"
    made = list(prepared(page, folder, language, int(students)))
    if own.is_file() and not any("exercise" in words for words in made):
        shutil.copy(own, folder / "sheet.toml")
        print(f"lesson {int(lesson)} has one sheet for all students, in English, and no key")
    for words in made:
        code = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, stdout=subprocess.DEVNULL).returncode
        if code:
            sys.exit(code)  # the command has said why
    print(*sorted(path.relative_to(ROOT).as_posix() for path in folder.iterdir()), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
