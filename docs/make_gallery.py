"""Write the pages of docs/gallery from the worked examples: make gallery."""

from pathlib import Path

from vitral.api.galleries import gallery_pages

FOLDER = Path(__file__).parent / "gallery"


def main() -> None:
    """Write every page; pages of examples that are no more go."""
    pages = gallery_pages()
    FOLDER.mkdir(exist_ok=True)
    for stale in {path.name for path in FOLDER.glob("*.md")} - set(pages):
        (FOLDER / stale).unlink()
    for name, page in pages.items():
        (FOLDER / name).write_text(page, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
