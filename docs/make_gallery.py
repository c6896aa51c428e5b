"""Write the pages of docs/gallery from the worked examples: make gallery."""

from pathlib import Path

from vitral.lab.examples import find_example, gallery
from vitral.reports.gallery import gallery_pages

FOLDER = Path(__file__).parent / "gallery"


def main() -> None:
    """Write every page; pages of examples that are no more go."""
    pages = gallery_pages({name: find_example(name) for name in gallery()})
    FOLDER.mkdir(exist_ok=True)
    for stale in {path.name for path in FOLDER.glob("*.md")} - set(pages):
        (FOLDER / stale).unlink()
    for name, page in pages.items():
        (FOLDER / name).write_text(page, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
