"""The demonstration in small: its page begins with the text that the model wrote, and refusals come before training."""

import html
import io
import re
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
from browser import needs_chromium
from pages import chromium, opened
from symbols import symbolic_lengths

from tests.app.conftest import printed_commands
from tests.conftest import TINY
from vitral import Run, configure
from vitral.app.demonstration import plan_demonstration
from vitral.app.terminal import run
from vitral.core.config import assignment, merge
from vitral.core.errors import UsageError
from vitral.core.language import in_language
from vitral.runs import RunFolder
from vitral.studies import loss_claims
from vitral.studies.results import run_name
from vitral.training import Event, silent

SMALL = (
    *TINY,
    "training.steps=4",
    "training.evaluate_every=2",
    "training.sample_every=1",
    "training.sample_tokens=20",
    "training.batch_size=5",
)
CHANGES = merge(*map(assignment, SMALL))


class Shown(NamedTuple):
    """A small demonstration: the folder in which it was asked for, its own, and what the command printed."""

    home: Path
    folder: Path
    printed: str


def demonstrated(home: Path, language: str = "en") -> Shown:
    printed, settings = io.StringIO(), [word for setting in SMALL for word in ("--set", setting)]
    with symbolic_lengths(), redirect_stdout(printed), chdir(home):
        assert run(["demo", "--lang", language, *settings]) == 0
        (folder,) = Path("runs").iterdir()
    return Shown(home, home / folder, printed.getvalue())


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Trained once."""
    return demonstrated(tmp_path_factory.mktemp("demo"))


def test_text_and_verdict_come_before_everything_else(shown: Shown) -> None:
    planned = plan_demonstration(shown.folder, CHANGES)
    result = planned.finish(planned.train(silent))
    page = (shown.folder / "report.html").read_text(encoding="utf-8")
    first = re.search(r"<pre[^>]*>\n(.*?)</pre>", page, re.DOTALL)
    assert first is not None
    assert re.sub("<[^>]*>", "", html.unescape(first[1])) == result.sample["text"]
    assert result.sample["step"] == Run(result.run, "best").step
    verdict = page.index(html.escape(loss_claims(result.study).rank.text))
    assert all(max(first.end(), verdict) < page.index(tag) for tag in ("<table", "<svg"))
    for heading in ("The text it wrote", "Learning", "One attention computation", "without attention", "The model"):
        assert heading in page
    assert not re.search(r"https?://(?!www\.w3\.org)", page)
    carried = (shown.folder / "model.html").read_text(encoding="utf-8")
    assert all(f'id="{part}"' in carried for part in ("weights", "weights-2"))
    assert "full/seed-1 · no-attention/seed-1" in carried
    assert '<a href="model.html">' in page
    assert "runs/demo/model.html" in shown.printed


@pytest.mark.parametrize(
    "language", [pytest.param("en", marks=pytest.mark.merge), pytest.param("pt", marks=pytest.mark.full)]
)
def test_the_commands_that_it_prints_and_its_pages_show_run_where_it_was_made(
    language: str, shown: Shown, typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = shown if language == "en" else demonstrated(tmp_path, language)
    monkeypatch.chdir(shown.home)
    for name in ("FILE", "ARQUIVO"):
        (shown.home / name).write_text("To be, or not to be, that is the question.\n" * 90, encoding="utf-8")
    pages = "\n".join(page.read_text(encoding="utf-8") for page in shown.folder.rglob("*.html"))
    told = printed_commands("\n".join([shown.printed, pages, *re.findall(r'"page":"(vitral .*?)"', pages)]))
    assert [words[0] for words in told] == ["generate", "explain", "why", "train", "bundle"]
    for words in told:
        typed(words)


COPIED = """() => {
  const told = [];
  Object.assign(navigator.clipboard, { writeText: async (text) => void told.push(text) });
  const buttons = [...document.querySelectorAll(".menu li button")];
  buttons.filter((each) => each.textContent === "Copy the command").forEach((each) => each.click());
  return told;
}"""


@pytest.mark.merge
@needs_chromium
def test_the_commands_under_the_figures_of_its_page_run(shown: Shown, typed, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    monkeypatch.chdir(shown.home)
    with chromium() as window:
        opened(window, shown.folder / "model.html", "#o=logits:0.0.1")
        window.locator("#opened .receipt.command").wait_for()
        receipts = window.locator(".receipt").all_text_contents()
        told = printed_commands("\n".join([*receipts, *window.evaluate(COPIED)]))
    assert {"inspect", "explain", "generate"} == {words[0] for words in told}
    for words in told:
        typed(words)


def test_the_first_words_come_long_before_the_first_run_ends(shown: Shown) -> None:
    samples = RunFolder(shown.folder / "study" / run_name("full", 1)).metrics("sample")
    begins = [shown.printed.index(part) for part in ("run 1 of 6", samples[0]["text"][:9], "run 6 of 6")]
    assert begins == sorted(begins)
    assert "run 7" not in shown.printed
    assert samples[0]["step"] < 4
    training = configure("demo").training
    assert training.sample_every is not None
    assert 4 * training.sample_every <= training.steps


def test_in_portuguese_it_reads_the_novel() -> None:
    with in_language("pt"):
        planned = plan_demonstration(None, CHANGES)
    assert planned.config.corpus.source == planned.dataset.name == "sample-pt"
    assert planned.out == Path("runs/demo-pt")
    text = str(planned.dataset.load_text().text)
    assert planned.subject.sentence in text
    assert planned.subject.prompt in text
    assert planned.config.training == plan_demonstration(None, CHANGES).config.training


def test_a_stopped_demonstration_goes_on_in_its_own_language_only(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if event["event"] == "step":
            raise KeyboardInterrupt

    with in_language("pt"), pytest.raises(KeyboardInterrupt):
        plan_demonstration(tmp_path / "d", CHANGES).train(stop)
    with pytest.raises(UsageError):
        plan_demonstration(tmp_path / "d", CHANGES).train(silent)


@pytest.mark.parametrize(("language", "name"), [("en", "runs/demo"), ("pt", "runs/demo-pt")])
def test_without_a_folder_a_stopped_one_goes_on_in_that_of_its_language(
    language: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with in_language(language):
        assert plan_demonstration(None, {}).out == Path(name)
        Path(name, "study").mkdir(parents=True)
        assert plan_demonstration(None, {}).out == Path(name)
        assert plan_demonstration(None, CHANGES).out == Path(f"{name}-2")
        Path(name, "MANIFEST.json").write_text("{}", encoding="utf-8")
        assert plan_demonstration(None, {}).out == Path(f"{name}-2")


def test_the_folder_of_something_else_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError):
        plan_demonstration(tmp_path, CHANGES)
    assert (tmp_path / "mine.txt").read_text(encoding="utf-8") == "mine"


def test_a_model_that_no_page_can_carry_is_two_lines_and_no_page(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vitral.page.content.MOST_BYTES", 10)
    with symbolic_lengths():
        assert plan_demonstration(shown.folder, CHANGES).carry(shown.folder / "study" / run_name("full", 1)) is None
    assert capsys.readouterr().err.count("\n") == 2  # of both models, of the first alone
