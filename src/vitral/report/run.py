"""The page of a run: the text it wrote, its losses against the n-gram baselines, its parameters and configuration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from vitral.core.language import N_, _
from vitral.core.process import program
from vitral.doctor.sample import WhySample
from vitral.evaluation import NgramBaselines, baseline_name, rank_among_baselines
from vitral.evaluation.copying import COPIED_WORDS
from vitral.model import parameter_table
from vitral.report.folder import ReportFolder
from vitral.report.html import page
from vitral.report.lines import Line, loss_plot
from vitral.report.model import parameter_section
from vitral.report.sections import Callout, Details, Heading, Listing, Paragraph, Preformatted, Section
from vitral.report.survey import on_reading
from vitral.report.tables import Column, Table, decimals, whole
from vitral.runs import SealedRun, enter
from vitral.runs.loading import warn_on_stderr
from vitral.runs.objectives import loss_unit, predicts_next

if TYPE_CHECKING:
    import matplotlib.figure

MOST_POINTS = 1000
"""Points of the line of logged losses; of more, the mean of neighbours is drawn."""
GRAY = N_("Gray lines: n-gram baselines.")
HOLLOW = N_("Hollow: an early evaluation, on few tokens of the validation split.")
PAGE = "run.html"


def write_run_report(path: Path) -> Path:
    """Write `report/run.html`, `report/losses.svg` and `.png` into a run's folder, and return the path of the page.

    Raises:
        UsageError: not a run, or a link or a device stands in the way.
        StorageError: writing to disk failed.
    """
    run = enter(path, warn_on_stderr)
    report = ReportFolder(run.path / "report")
    report.add(PAGE, run_page(run, report))
    report.write()
    return path / "report" / PAGE


def run_page(run: SealedRun, report: ReportFolder) -> str:
    """The page of a run as an HTML document; its figures are added to `report`."""
    counted = run.ngrams()  # there are none before the first evaluation
    baselines = None if counted is None else NgramBaselines.from_plain(counted)
    sections: list[Section] = [*sample_sections(run), *loss_sections(run, baselines, report)]
    sections += [
        Heading(_("Parameters")),
        parameter_section(parameter_table(run.config.model, run.tokenizer.vocab_size)),
    ]
    configuration = tomli_w.dumps(run.config.plain())
    sections.append(Details(_("The whole configuration"), (Preformatted(configuration),)))
    return page(_("Run {name}", name=run.path.name), sections, footer=_("Made by Vitral."))


def sample_sections(run: SealedRun) -> list[Section]:
    """The texts that a run wrote while it was trained: of the best checkpoint, the last, and the others in a fold."""
    samples = {event["step"]: event for event in run.metrics("sample")}
    if not samples:
        return []
    evaluations, titles = run.metrics("evaluation"), dict[int, str]()
    if evaluations:
        titles[_best(evaluations)["step"]] = N_("after step {step:,}, the best checkpoint")
    titles.setdefault(max(samples), N_("after step {step:,}, the last step"))
    shown = [sample(samples[step], title) for step, title in titles.items() if step in samples]
    earlier = [sample(event) for step, event in sorted(samples.items()) if step not in titles]
    folded = [Details(_("Earlier texts"), tuple(earlier))] if earlier else []
    records = run.config.corpus.records is not None
    copied = [] if records else [Paragraph(copied_text(list(samples.values())))]
    title = _("Its answers") if records else _("The text it wrote")
    why = Listing(tuple(WhySample.of(run).lines(program())))
    return [Heading(title), *shown, *copied, *folded, Heading(_("Why is my sample bad?")), why, Heading(_("Losses"))]


def copied_text(samples: Sequence[Mapping[str, Any]]) -> str:
    """Whether passages of the training text stand in these texts."""
    if any(event.get("copied") for event in samples):
        return _("Underlined: {words} or more words in a row that stand in the training text.", words=COPIED_WORDS)
    if all("copied" in event for event in samples):
        return _("No {words} words in a row of these texts stand in the training text.", words=COPIED_WORDS)
    return _("These texts were not searched for passages of the training text.")


def _best(evaluations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The evaluation of the best checkpoint: the first of those with the lowest validation loss."""
    return min(evaluations, key=lambda event: event["validation_loss"])


def sample(event: Mapping[str, Any], title: str = N_("after step {step:,}")) -> Preformatted:
    """A text that a run wrote while it was trained, with its passages of the training text marked."""
    caption = _(title, step=event["step"])
    return Preformatted(event["text"], caption, tuple((begin, end) for begin, end in event.get("copied", ())))


def loss_sections(run: SealedRun, baselines: NgramBaselines | None, report: ReportFolder) -> list[Section]:
    """The losses of a run as a sentence, a figure (added to the report) and a table."""
    is_causal_lm = predicts_next(run.config.training.objective)
    unit = loss_unit(run.config.training.objective)
    events = {kind: run.metrics(kind) for kind in ("step", "evaluation", "early")}
    evaluations = events["evaluation"]
    corpus = run.document("corpus")
    problems = corpus.get("problems", ())
    beside = baselines if is_causal_lm and not problems else None
    drawn = loss_curve(events, beside, unit)
    if not evaluations or baselines is None:
        state, origin = _("There is no evaluation yet."), run.imported
        if origin is not None:
            sentence = N_("Imported from {source} ({form}); it was not trained here.")
            state = _(sentence, source=origin["source"], form=origin["form"])
        caption = _("Training loss of single steps, with dropout where there is any.")
        figure = [report.figure(drawn, "losses", caption, _("The training loss."))] if drawn is not None else []
        return [Paragraph(state), *figure]
    last, best = evaluations[-1], _best(evaluations)
    rank = rank_among_baselines(best["test_loss"], baselines.orders, problems) if is_causal_lm else ""
    sentence = N_("After {steps:,} steps the test loss is {loss:.3f} {unit}.")
    finding = _(sentence, steps=best["step"], loss=best["test_loss"], unit=f"{unit}, {rank}" if rank else unit)
    if best["step"] != last["step"]:
        later = N_("This is the best checkpoint; after all {steps:,} steps the test loss is {loss:.3f} {unit}.")
        finding += " " + _(later, steps=last["step"], loss=last["test_loss"], unit=unit)
    notes = [SINGLE_STEPS if events["step"] else MEAN_OF_BATCHES]
    notes += [HOLLOW] * bool(events["early"]) + [GRAY] * (beside is not None)
    figure = [] if drawn is None else [report.figure(drawn, "losses", " ".join(map(_, notes)), finding)]
    exact = Column("test_exact_match", N_("exact answers of test"), decimals(3))
    columns = (
        Column("step", N_("step"), whole),
        Column("train_loss", N_("training"), decimals(3)),
        Column("validation_loss", N_("validation"), decimals(3)),
        Column("test_loss", N_("test"), decimals(3)),
        *[exact] * (exact.key in last),
    )
    rows = list[dict[str, Any]]()
    for event in evaluations:  # the last logged step, as the figure draws it
        logged = [one["loss"] for one in events["step"] if one["step"] <= event["step"]]
        rows.append({**event, "train_loss": (logged or [event["train_loss"]])[-1]})
    table = Table(_("Losses in {unit}", unit=unit), columns, rows)
    about_text = on_reading(corpus.get("notes", ())) + [Paragraph(_(one)) for one in problems]
    return [Callout(finding), *about_text, *figure, table]


SINGLE_STEPS = N_(
    "Loss against steps. Training: single steps, with dropout where there is any. Validation and test: full passes."
)
MEAN_OF_BATCHES = N_(
    "Loss against steps. Training: mean over the batches since the previous evaluation, with dropout where there is "
    "any. Validation and test: full passes."
)


def loss_curve(
    events: Mapping[str, Sequence[Mapping[str, Any]]], baselines: NgramBaselines | None, unit: str
) -> "matplotlib.figure.Figure | None":
    """The curve of a training: logged losses as a thin line, evaluations as dots, early ones as hollow dots.

    Args:
        events: of the kinds "step", "evaluation" and "early", each in order.
        baselines: drawn as lines across; None for none.
        unit: of the losses.

    Returns:
        The figure; None without a loss.
    """
    known = {} if baselines is None else baselines.orders
    references = [(baseline_name(order), loss) for order, loss in known.items()]
    evaluations, early = events["evaluation"], events["early"]
    steps = [event["step"] for event in evaluations]
    lines = [
        _logged(events["step"]) or Line(_("training"), steps, [e["train_loss"] for e in evaluations], look="plain")
    ]
    lines += [
        Line(label, steps, [event[f"{split}_loss"] for event in evaluations])
        for split, label in (("validation", _("validation")), ("test", _("test")))
    ]
    lines.append(Line("", [e["step"] for e in early], [e["validation_loss"] for e in early], look="hollow"))
    if not any(line.x for line in lines):
        return None
    return loss_plot(
        lines, references=references, title=_("Loss while training"), y_label=_("loss ({unit})", unit=unit)
    )


def _logged(events: Sequence[Mapping[str, Any]]) -> Line | None:
    if not events:
        return None
    size = -(-len(events) // MOST_POINTS)
    groups = [events[begin : begin + size] for begin in range(0, len(events), size)]
    means = [sum(event["loss"] for event in group) / len(group) for group in groups]
    return Line(_("training"), [group[-1]["step"] for group in groups], means, look="thin")
