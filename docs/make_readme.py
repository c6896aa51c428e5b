"""Write README.md and docs/pt/README.md from docs/readme.txt: python -m docs.make_readme.

The source is Markdown in which «English¦Português» stands where the languages differ. A link names a page of docs, or
with a leading / a file of the repository; the Portuguese page is linked where there is one. In a block of code, four
blanks or more separate a command from what is said of it, which stands in one column.
"""

import os.path
import re
from pathlib import Path

DOCS = Path(__file__).parent
READMES = {"en": DOCS.parent / "README.md", "pt": DOCS / "pt" / "README.md"}
NAMES = {"my.txt": "meu.txt", "runs/my": "runs/meu", "my.html": "meu.html"}
"""Of the reader's files, in both languages."""
COLUMN = 40
"""At which a block of code says what its commands do."""


def readme(language: str) -> str:
    """The README in one language."""
    text = (DOCS / "readme.txt").read_text(encoding="utf-8")
    text = re.sub(r"«([^«»¦]*)¦([^«»]*)»", r"\1" if language == "en" else r"\2", text)
    if language == "pt":
        text = re.sub("|".join(map(re.escape, NAMES)), lambda found: NAMES[found[0]], text)
    text = re.sub(r"^(\S.*?\S) {4,}(?=\S)", lambda found: f"{found[1]:<{COLUMN}}  ", text, flags=re.MULTILINE)
    return re.sub(r"\]\(([^):]+)\)", lambda found: f"]({address(found[1], language)})", text)


def address(link: str, language: str) -> str:
    """A link of the source, from the README in this language."""
    page, mark, anchor = link.partition("#")
    here = READMES[language].parent
    to = DOCS.parent / page[1:] if page.startswith("/") else DOCS / page
    if language == "pt" and (DOCS / "pt" / page).is_file():
        to = DOCS / "pt" / page
    elif (here / page).resolve() in READMES.values():  # the other language
        return link
    return Path(os.path.relpath(to, here)).as_posix() + mark + anchor


if __name__ == "__main__":
    for name, path in READMES.items():
        path.write_text(readme(name), encoding="utf-8", newline="\n")
