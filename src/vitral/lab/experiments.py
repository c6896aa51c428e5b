"""Studies from Python: `study` and `demo`, as the commands of these names."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.core.checked import Count, checked
from vitral.core.errors import Interrupted
from vitral.core.language import _, in_language
from vitral.figures.notebook import Shown, page_of, written_page
from vitral.figures.plain import plain_text
from vitral.figures.sections import Preformatted
from vitral.lab.demonstration import ORDER, plan_demonstration
from vitral.lab.new_runs import text
from vitral.lab.progress import progress_shown
from vitral.lab.study_plan import plan_study, settings_of
from vitral.reports.demonstration import DemonstrationResult
from vitral.reports.study import StudyPage
from vitral.studies import against_counts, loss_claims
from vitral.training import Callback, silent


@checked
def study(
    name: str | Path,
    start: str | Path | None = None,
    *,
    budget: str | None = None,
    corpus: str | Path | None = None,
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    threads: Count | None = None,
    executor: Any = None,
    callback: Callback = silent,
    progress: bool | None = None,
    **overrides: Any,
) -> StudyPage:
    """Run a study, or continue one that was stopped, and write its report.

    Args:
        name: a study's name (`vitral.list_studies`) or a `.toml` file.
        start: preset or configuration of the base model; the study's own if None.
        budget: "quick", "standard" or "full"; the smallest that the study has if None.
        corpus: the text, instead of the configuration's.
        seeds: the study's own if None.
        out: the study's folder; `studies/NAME-BUDGET` if None.
        threads: of the processor.
        executor: trains: None for this process, one run after another; a number of processes; "dask:ADDRESS";
            "slurm:KEY=VALUE"; or any object with the `submit` of `concurrent.futures`. The numbers do not depend on it.
        callback: called with every event of training and measuring; of a run that is trained elsewhere, with a note.
        progress: whether the progress is shown; None: in a notebook.
        overrides: tables of the base's configuration, as for `train`.

    Raises:
        UsageError: an unknown study, an invalid argument, or the folder contains another study.
        StorageError: writing to disk failed.
        Interrupted: it was stopped; the same call goes on from there.
    """
    layers: list[Mapping[str, Any]] = [overrides] if overrides else []
    if threads is not None:
        layers.append({"training": {"threads": threads}})
    folder = None if out is None else Path(out)
    how = {"budget": budget, "corpus": text(corpus), "seeds": seeds}
    plan = plan_study(str(name), text(start), **how, overrides=layers, out=folder)
    with progress_shown(progress, callback) as told, _going_on(plan.out):
        return plan.run(callback=told, executor=executor)


@checked
@dataclass(frozen=True, repr=False)
class DemoPage(Shown):
    """The page of the demonstration.

    Attributes:
        html: its file.
        model: the page that carries the model, and computes it in the browser; None if no page can.
        run: the folder of the run that it shows; `vitral.load` opens it.
        sample: a text by that run.
        verdicts: of the study, in sentences.
        in_english: `verdicts` in English, for programs.
    """

    html: Path
    model: Path | None
    run: Path
    sample: str
    verdicts: tuple[str, ...]
    in_english: tuple[str, ...]

    def __str__(self) -> str:
        """The text that the model wrote, the verdicts, and the page."""
        pages = [_("report: {path}", path=self.html)]
        pages += [_("page that computes: {path}", path=self.model)] if self.model else []
        return plain_text("", [Preformatted(self.sample)], lead="") + "\n\n" + "\n".join([*self.verdicts, *pages])

    def plain(self) -> dict[str, Any]:
        """As plain data, in English."""
        paths = {"html": str(self.html), "model": None if self.model is None else str(self.model), "run": str(self.run)}
        return {**paths, "sample": self.sample, "verdicts": list(self.in_english)}


@page_of.register
def _demo_page(demonstrated: DemoPage) -> str:
    return written_page(demonstrated.html, demonstrated)


@checked
def demo(
    out: str | Path | None = None,
    *,
    callback: Callback = silent,
    progress: bool | None = None,
    **overrides: Any,
) -> DemoPage:
    """Take the short tour of the command: a text, a model, a study, an explanation, in two minutes on 2 cores.

    Args:
        out: folder to create, or to go on with; in `runs/` if None.
        callback: called with every event of training and measuring.
        progress: whether the progress is shown; None: in a notebook.
        overrides: tables of the configuration, as for `train`.

    Raises:
        UsageError: `out` contains something else, or an invalid configuration.
        StorageError: writing to disk failed.
        Interrupted: it was stopped; the same call goes on from there.
    """
    planned = plan_demonstration(None if out is None else Path(out), list(settings_of(overrides)))
    with progress_shown(progress, callback) as told, _going_on(planned.out):
        result = planned.finish(planned.train(told))
        carried = planned.carry()
        page = planned.write(result)
    with in_language("en"):
        in_english = _verdicts(result)
    return DemoPage(page, carried, result.run, result.sample.text, _verdicts(result), in_english)


def _verdicts(result: DemonstrationResult) -> tuple[str, ...]:
    counted = against_counts(result.study, ORDER)
    return (counted.text, *(claim.text for claim in loss_claims(result.study).contrasts))


@contextmanager
def _going_on(folder: Path) -> Generator[None]:
    """Tell a person who interrupts the block how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        line = _(
            "stopped; what was trained and measured is in {folder}, and the same call goes on from there", folder=folder
        )
        raise Interrupted(line) from None
