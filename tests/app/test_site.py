"""The site: it is built without a warning, no link in it is dead, and axe finds nothing on its pages."""

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.merge
pytest.importorskip("material", reason="mkdocs-material is not installed: make .venv/.installed-docs")
pytest.importorskip("latex2mathml", reason="latex2mathml is not installed: make .venv/.installed-docs")

ROOT = Path(__file__).parents[2]
AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
PAGES = ("index.html", "first-steps.html", "commands.html", "gallery/loss-and-backward.html")
PAGES += ("studies/no-attention.html", "pt/index.html", "pt/how-to/my-sample-is-bad.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both languages, without the notebooks' outputs."""
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"VITRAL_NOTEBOOKS": "0", "NO_MKDOCS_2_WARNING": "1"}
    for language, to in (("en", folder), ("pt", folder / "pt")):
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(to)]
        done = subprocess.run(
            command, cwd=ROOT, env=environment | {"VITRAL_SITE": language}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    return folder


def test_no_link_of_the_site_is_dead(site: Path) -> None:
    pages = [
        page for page in site.glob("**/*.html") if page.name not in ("404.html", "aldermere.html", "casmurro.html")
    ]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    marks = {page: {*re.findall(r'\b(?:id|name)="([^"]*)"', text)} for page, text in texts.items()}
    assert len(texts) > 120
    for page, text in texts.items():
        bare = re.sub(r"<(script|iframe)\b.*?</\1>|srcdoc=\"[^\"]*\"", "", text, flags=re.DOTALL)
        for link in re.findall(r'\b(?:href|src)="([^"]*)"', bare):
            to = urlsplit(unescape(link))
            assert to.scheme in ("", "http", "https", "mailto"), (page.name, link)
            if to.scheme:
                continue
            file = (page.parent / unquote(to.path)).resolve() if to.path else page
            file = file / "index.html" if file.is_dir() else file
            assert file.exists(), (page.name, link)
            assert not to.fragment or file not in marks or unquote(to.fragment) in marks[file], (page.name, link)
        loaded = re.findall(r'<(?:script|img|link rel="(?:stylesheet|icon|preconnect)")[^>]*(?:src|href)="(\w+:)', bare)
        assert loaded in ([], ["data:"]), page.name  # nothing comes from elsewhere


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: make web")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 390)])
def test_axe_finds_nothing(scheme: str, width: int, site: Path) -> None:
    chromium = pytest.importorskip("playwright.sync_api")
    with chromium.sync_playwright() as driver:
        browser: Any = driver.chromium.launch(executable_path="/usr/bin/chromium")
        window = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        for page in PAGES:
            window.goto((site / page).as_uri())
            window.wait_for_load_state("networkidle")
            window.evaluate(AXE.read_text(encoding="utf-8"))
            found = window.evaluate("() => axe.run()")["violations"]
            told = [(page, each["id"], [node["html"][:150] for node in each["nodes"][:3]]) for each in found]
            assert told == []
            assert window.evaluate("document.documentElement.scrollWidth") <= width, page
        browser.close()
