"""The demonstration in small: its page begins with the text that the model wrote, and refusals come before training."""

import html
import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
from symbols import symbolic_lengths

from tests.conftest import TINY
from vitral import Run, configure
from vitral.app.demonstration import plan_demonstration
from vitral.app.terminal import run
from vitral.core.config import assignment, merge
from vitral.core.errors import UsageError
from vitral.core.language import in_language
from vitral.runs import RunFolder
from vitral.studies import loss_claims
from vitral.studies.results import run_path
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
    """A small demonstration: its folder, and what the command printed."""

    folder: Path
    printed: str


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Trained once."""
    folder, printed = tmp_path_factory.mktemp("demo") / "d", io.StringIO()
    settings = [word for setting in SMALL for word in ("--set", setting)]
    with symbolic_lengths(), redirect_stdout(printed):
        assert run(["demo", "--out", str(folder), *settings]) == 0
    return Shown(folder, printed.getvalue())


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
    assert str(shown.folder / "model.html") in shown.printed


def test_the_first_words_come_long_before_the_first_run_ends(shown: Shown) -> None:
    samples = RunFolder(run_path(shown.folder / "study", "full", 1)).metrics("sample")
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
        assert plan_demonstration(shown.folder, CHANGES).carry(run_path(shown.folder / "study", "full", 1)) is None
    assert capsys.readouterr().err.count("\n") == 2  # of both models, of the first alone
