"""The demonstration in small: its page begins with the text that the model wrote, and refusals come before training."""

import html
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from symbols import symbolic_lengths

from vitral.core.errors import UsageError
from vitral.core.language import in_language
from vitral.lab import Run, configure
from vitral.lab.demonstration import Demonstration, plan_demonstration
from vitral.reports.demonstration import DemonstrationResult
from vitral.training import Event, silent

SMALL = (
    "model.d_model=12",
    "model.num_layers=1",
    "model.num_heads=3",
    "model.context_length=11",
    "training.steps=4",
    "training.evaluate_every=2",
    "training.sample_every=1",
    "training.sample_tokens=20",
    "training.batch_size=5",
)


class Shown(NamedTuple):
    """A small demonstration."""

    planned: Demonstration
    result: DemonstrationResult
    page: str
    events: list[dict[str, Any]]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Trained once."""
    planned, events = plan_demonstration(tmp_path_factory.mktemp("demo") / "d", SMALL), list[dict[str, Any]]()
    result = planned.finish(planned.train(lambda event: events.append(dict(event))))
    return Shown(planned, result, planned.write(result).read_text(encoding="utf-8"), events)


def test_the_page_begins_with_the_text_of_the_best_checkpoint(shown: Shown) -> None:
    first = re.search(r"<pre[^>]*>\n(.*?)</pre>", shown.page, re.DOTALL)
    assert first is not None
    assert re.sub("<[^>]*>", "", html.unescape(first[1])) == shown.result.sample.text
    assert all(first.end() < shown.page.index(tag) for tag in ("<table", "<svg", "<details", "<h3"))
    assert shown.result.sample.step == Run(shown.result.run, "best").step


def test_the_verdict_comes_before_every_figure_and_table(shown: Shown) -> None:
    at = shown.page.index(html.escape(shown.result.verdict.text))
    assert all(at < shown.page.index(tag) for tag in ("<table", "<svg"))


def test_the_first_words_come_long_before_the_first_run_ends(shown: Shown) -> None:
    kinds = [event["event"] for event in shown.events]
    first, end = kinds.index("sample"), kinds.index("end")
    assert shown.events[first]["run"] == 1
    assert shown.events[first]["step"] < shown.events[end]["step"]
    training = configure("demo").training
    assert training.sample_every is not None
    assert 4 * training.sample_every <= training.steps


def test_in_portuguese_it_reads_the_novel() -> None:
    with in_language("pt"):
        planned = plan_demonstration(settings=SMALL)
    assert planned.config.corpus.source == planned.dataset.corpus_name == "sample-pt"
    assert planned.out == Path("runs/demo-pt")
    text = str(planned.dataset.load_text().text)
    assert planned.subject.sentence in text
    assert planned.subject.prompt in text
    assert planned.config.training == plan_demonstration(settings=SMALL).config.training


@pytest.mark.parametrize(("first", "then"), [("en", "pt"), ("pt", "en")])
def test_a_stopped_demonstration_goes_on_in_its_own_language_only(tmp_path: Path, first: str, then: str) -> None:
    def stop(event: Event) -> None:
        if event["event"] == "step":
            raise KeyboardInterrupt

    with in_language(first), pytest.raises(KeyboardInterrupt):
        plan_demonstration(tmp_path / "d", SMALL).train(stop)
    with in_language(then), pytest.raises(UsageError):
        plan_demonstration(tmp_path / "d", SMALL).train(silent)
    with in_language(first):
        planned = plan_demonstration(tmp_path / "d", SMALL)
        assert planned.write(planned.finish(planned.train(silent))).is_file()


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("model.context_length=8", "context_length"),
        ('model.attention="none"', "attention"),
        ("model.num_layers=0", "attention"),
        ("training.objective=masked", "sample"),
    ],
)
def test_a_model_that_could_not_fill_the_page_is_refused_before_training(
    tmp_path: Path, setting: str, named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        plan_demonstration(tmp_path / "d", [*SMALL, setting])
    assert not (tmp_path / "d").exists()


def test_a_model_that_no_page_can_carry_is_one_line_and_no_page(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    planned, lines = shown.planned, list[str]()
    with monkeypatch.context() as patched:
        patched.setattr("vitral.page.content.MOST_BYTES", 10)
        with symbolic_lengths():
            assert planned.carry(lines.append) is None
    assert len(lines) == 1
    assert "\n" not in lines[0]
    with symbolic_lengths():
        carried = planned.carry(lines.append)
    assert carried is not None
    assert carried.is_file()
    assert len(lines) == 1
