"""The screenshots of docs/page.md: python docs/make_page_pictures.py PAGE.html, a file of `vitral bundle`.

Light and dark, English and Portuguese, a phone, a tablet and a screen; with `--whole` whole pages, a projector and a
print, to look at (in build/page). Needs Chromium, Playwright and Pillow.
"""

import argparse
import io
import itertools
import shutil
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).parent / "images" / "page"
LOOKED_AT = Path(__file__).parents[1] / "build" / "page"
THEMES, LANGUAGES, SIZES = ("light", "dark"), ("en", "pt"), {390: 1180, 1024: 1300, 1600: 1300}
FRONT, FRONT_CLIP = {"en": "page.png", "pt": "page-pt.png"}, {"x": 0, "y": 96, "width": 1500, "height": 1870}
"""Pictures of the READMEs: from the question to the end of the overview."""
PROJECTOR = (1920, 1080)
BUTTONS = {"en": "English", "pt": "português"}
COLOURS = 256


def main() -> None:
    """Open the page once for each picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--whole", action="store_true", help="whole pages, a projector and a print, in build/page")
    asked = parser.parse_args()
    folder = LOOKED_AT if asked.whole else PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for theme, language, (width, height) in itertools.product(THEMES, LANGUAGES, SIZES.items()):
            page = opened(browser, asked.page, theme, language, (width, height))
            save(page.screenshot(full_page=asked.whole), folder / f"{theme}-{language}-{width}.png")
        for language, name in () if asked.whole else FRONT.items():
            page = opened(browser, asked.page, "light", language, (FRONT_CLIP["width"], 2000))
            save(page.screenshot(clip=FRONT_CLIP), PICTURES.parent / name)
        if asked.whole:
            page = opened(browser, asked.page, "light", "en", PROJECTOR)
            save(page.screenshot(), folder / "projector.png")
            page.pdf(path=folder / "print.pdf", format="A4")
        browser.close()


def opened(browser: Any, file: Path, theme: str, language: str, size: tuple[int, int]) -> Any:
    """The page in a window of this size, once it has drawn."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=theme, reduced_motion="reduce", offline=True
    )
    page = context.new_page()
    page.goto(file.resolve().as_uri())
    page.locator("main h1").wait_for()
    page.get_by_role("button", name=BUTTONS[language]).click()
    page.wait_for_timeout(1500)
    return page


def save(png: bytes, path: Path) -> None:
    """A small PNG: the page has few colours."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    main()
