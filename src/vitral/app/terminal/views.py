"""What the terminal shows of results; a keyword parameter of a view is an option that only the command has."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vitral.app.options import Digits, Form, Format, Option, TableFormat
from vitral.app.terminal.complaints import complain
from vitral.core.errors import UsageError
from vitral.core.language import _, in_language, ngettext

if TYPE_CHECKING:
    from vitral.app.inspected import Inspection
    from vitral.app.pages import Bundle
    from vitral.app.run import Run
    from vitral.app.samples import Samples
    from vitral.compare.comparison import RunComparison
    from vitral.doctor.health import Diagnosis
    from vitral.explanation import Walkthrough
    from vitral.forecast.forecasting import Forecast
    from vitral.interop import Export
    from vitral.report.graded_class import GradedClass
    from vitral.report.model import ModelCount
    from vitral.report.study import StudyPage
    from vitral.report.survey import Survey


def print_result(
    result: Any,
    format: str,
    printed: Callable[[Any], None],
    table: Callable[[Any], Any] = lambda result: result.table(),
    data: Callable[[Any], Any] = lambda result: getattr(result, "data", result.table)(),
) -> None:
    """Print a result for people, as JSON, or as a table in another form; the CSV may have more columns."""
    from vitral.app.terminal.screen import print_form, print_json

    if format == "text":
        printed(result)
    elif format == "json":
        with in_language("en"):  # data has no other language
            print_json(result.plain())
    else:
        print_form(data(result) if format == "csv" else table(result), format)


@contextmanager
def pieces(
    *, format: str, num_samples: int = 1, num_beams: int | None = None, stats: bool = False, **given: Any
) -> Iterator[Mapping[str, Any]]:
    """A single text appears as it is made."""
    alone = num_samples == 1 and num_beams is None and format == "text" and not stats
    yield {"on_text": write_text} if alone else {}


def write_text(text: str) -> None:
    """Write a model's text: exactly and in UTF-8, but on a terminal with its control characters visible."""
    from vitral.core.text import visible

    stream = sys.stdout
    if stream.isatty():
        text = visible(text)
    elif isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors=stream.errors, newline="")
    stream.write(text)
    stream.flush()


def show_samples(samples: "Samples", *, stats: bool = False, format: Format = "text") -> None:
    """The texts.

    Args:
        stats: Also print the speed to standard error, and whether it ran in C.
        format: Output for people (text) or programs (json).
    """
    from vitral.app.terminal.screen import print_json

    if format == "json":
        print_json(samples.plain())
    else:
        write_text(f"{samples if len(samples) else ''}\n")
    if not stats or samples.way is None:
        return
    tokens, way = sum(len(sample.tokens) for sample in samples), samples.way
    how = _("in C ({found})", found=way.found) if way.is_in_c else _("by PyTorch: {found}", found=_(way.found))
    line = _(
        "{tokens:,} tokens in {seconds:.3f} s, {rate:,.0f} tokens/s, {how}",
        tokens=tokens,
        seconds=samples.seconds,
        rate=tokens / max(samples.seconds, 1e-9),
        how=how,
    )
    sys.stderr.write(line + "\n")


def show_measures(measures: Any, *, format: TableFormat = "text") -> None:
    """The losses on whole splits, the n-gram baselines, and how much a sample copies.

    Args:
        format: Output for people (text), programs (json, csv) or documents (markdown, latex).
    """
    from vitral.app.terminal.screen import print_sections
    from vitral.report.measures import losses_table, measures_sections

    print_result(
        measures,
        format,
        lambda found: print_sections(measures_sections(found)),
        *[lambda found: losses_table(found, baselines=True)] * 2,
    )


InspectionForm = Literal["text", "json", "html"]
FORMS: dict[str, InspectionForm] = {"": "text", ".txt": "text", ".json": "json", ".html": "html", ".htm": "html"}


@contextmanager
def form_known(*, format: str | None = None, out: Path | None = None, **given: Any) -> Iterator[Mapping[str, Any]]:
    """Whatever can be refused of the file is refused before anything is computed."""
    _form_of(format, out)
    if out is not None and out.exists():
        raise UsageError("{out}: exists already and was not overwritten; choose another name", out=out)
    yield {}


def _form_of(format: str | None, out: Path | None) -> str:
    """The form that is asked for, or that the ending of the file names.

    Raises:
        UsageError: the ending names no form.
    """
    if format is None and out is not None and out.suffix.lower() not in FORMS:
        raise UsageError(
            "--out {out}: no form has the ending {suffix!r}; use .txt, .json or .html, or --format",
            out=out,
            suffix=out.suffix,
        )
    return format or ("text" if out is None else FORMS[out.suffix.lower()])


def show_inspection(inspection: "Inspection", *, format: InspectionForm | None = None, out: Path | None = None) -> None:
    """A summary on the terminal, or everything in a file.

    Args:
        format: Form of the result.  [default: by the ending of --out (.html, .json), else text]
        out: File to write the result to.  [default: the screen]
    """
    from vitral.app.terminal.inspection import print_inspection
    from vitral.app.terminal.screen import prints_unicode, say
    from vitral.explanation.examples.by_name import write_new

    form = _form_of(format, out)
    if form == "json":
        as_ascii = out is None and not prints_unicode()
        written = json.dumps(inspection.plain(), ensure_ascii=as_ascii, allow_nan=False) + "\n"
    elif form == "html":
        written = inspection.page().rstrip("\n") + "\n"
    elif out is None:
        print_inspection(inspection.found)
        return
    else:
        with contextlib.redirect_stdout(io.StringIO()) as screen:
            print_inspection(inspection.found)
        written = screen.getvalue()
    if out is None:
        sys.stdout.write(written)
    else:
        say(_("written: {path}", path=write_new(out, written)))


def show_walkthrough(
    walkthrough: "Walkthrough",
    *,
    whole: Annotated[bool, Option("--all")] = False,
    digits: Digits = 3,
    format: Form = "text",
    out: Path | None = None,
) -> None:
    """A walkthrough in one form, on the screen or in a new file.

    Args:
        whole: Write all rows, columns and terms of sums.  [default: those that matter most]
        digits: Digits after the decimal point.
        format: Form of the walkthrough.
        out: File to write the walkthrough to.  [default: the screen]
    """
    from vitral.app.terminal.screen import prints_unicode, say
    from vitral.app.terminal.walkthrough import print_walkthrough, written
    from vitral.explanation.examples.by_name import write_new

    if out is None and format == "text":
        print_walkthrough(walkthrough, digits, whole=whole)
        return
    made = written(walkthrough, format, digits, whole=whole, as_ascii=out is None and not prints_unicode())
    if out is None:
        sys.stdout.write(made)
    else:
        say(_("written: {path}", path=write_new(out, made if made.endswith("\n") else f"{made}\n")))


def show_survey(surveyed: "Survey", *, out: Path | None = None, format: TableFormat = "text") -> None:
    """The text in numbers, its alphabet, its n-gram baselines, its problems and how to train on it.

    Args:
        out: Folder to write the report to as a page with figures.  [default: no page]
        format: Output for people (text), programs (json, csv) or documents (markdown, latex).
    """
    from vitral.app.terminal.counts import print_survey

    print_result(surveyed, format, print_survey)
    print_page(None if out is None else surveyed.write(out), format)


def print_page(page: Path | None, format: str) -> None:
    """Print where the page of a result is, if there is one."""
    from vitral.app.terminal.screen import say

    if page is not None and format == "text":
        say(_("page: {path}", path=page))


def show_count(counted: "ModelCount", *, format: TableFormat = "text") -> None:
    """Every tensor with its formula, the total, operations and bytes.

    Args:
        format: Output for people (text), programs (json, csv) or documents (markdown, latex).
    """
    from vitral.app.terminal.counts import print_count

    print_result(counted, format, print_count)


def show_forecast(forecast: "Forecast", *, format: TableFormat = "text") -> None:
    """Memory, speed and hours, with how they are counted.

    Args:
        format: Output for people (text), programs (json, csv) or documents (markdown, latex).
    """
    from vitral.app.terminal.counts import print_forecast
    from vitral.report.forecast import forecast_table

    print_result(forecast, format, print_forecast, forecast_table, forecast_table)


def show_comparison(found: "RunComparison", *, out: Path | None = None, format: TableFormat = "text") -> None:
    """The tables, the sentences and the samples.

    Args:
        out: Folder for a page, tables and figures (SVG, PNG, PDF).  [default: none]
        format: Output for people (text), programs (json, csv) or documents (markdown, latex).
    """
    from vitral.app.terminal.counts import print_comparison
    from vitral.report.side_by_side import comparison_data, comparison_table, write_comparison

    page = None if out is None else write_comparison(found, out)  # first: the reader of a pipe may leave
    print_result(found, format, print_comparison, comparison_table, comparison_data)
    print_page(page, format)


def show_study(done: "StudyPage", *, format: TableFormat = "text") -> None:
    """The verdict of a study, or its comparisons.

    Args:
        format: Output for people (text), programs (json, csv) or documents (markdown, latex).
    """
    from vitral.app.terminal.screen import print_form, print_json, say

    if format == "json":
        with in_language("en"):  # data has no other language
            print_json(done.plain())
    elif format != "text":
        print_form(done.comparisons(as_data=format == "csv"), format)
    else:
        say(_("verdict:"))
        for claim in done.listed:
            say(f"  {_(claim.text)}")
        say(_("report: {path}", path=done.html))


def show_diagnosis(diagnosis: "Diagnosis", *, format: Format = "text") -> int:
    """What was repaired, and one line for each check.

    Args:
        format: Output for people (text) or programs (json).
    """
    from vitral.app.terminal.screen import say

    print_result(diagnosis, format, lambda found: say(str(found)))
    return 0 if diagnosis.healthy else 1


def show_grades(
    graded: "GradedClass",
    *,
    format: Literal["text", "json", "csv", "html", "markdown"] = "text",
    out: Path | None = None,
    marked: Path | None = None,
    pseudonyms: Path | None = None,
) -> int:
    """The class in a table, and what was written.

    Args:
        format: Output for people (text, html, markdown) or programs (json, csv).
        out: File for the page of the class (.html).
        marked: Folder for a page of each sheet with its marks.
        pseudonyms: CSV file of pseudonyms, shown instead of file names; made if there is none.
    """
    from vitral.app.terminal.screen import print_data, print_json, say
    from vitral.explanation.grading.sheets import FailedSheet

    if format == "json":
        print_json(graded.plain())
    elif format == "text":
        say(graded.summary)
        print_data(graded.table())
        print_data(graded.steps_table())
        for note in graded.notes:
            say(_(note))
        for path in filter(None, (out, marked, pseudonyms)):
            say(_("written: {path}", path=path))
    else:
        written = {
            "csv": lambda: graded.data().csv(),
            "html": graded.page,
            "markdown": lambda: graded.markdown() + "\n",
        }
        sys.stdout.write(written[format]())
    for sheet in graded.unreadable:
        complain(_(sheet.error))
    failed = any(isinstance(sheet, FailedSheet) for sheet in graded.unreadable)
    return 70 if failed else 2 * bool(graded.unreadable)


def show_bundle(made: "Bundle", *, format: Format = "text") -> None:
    """Where the page is.

    Args:
        format: Output for people (text) or programs (json).
    """
    from vitral.app.terminal.screen import say

    said = _("page: {path} ({size:.1f} MB); open it in a browser", path=made.path, size=made.size / 1e6)
    print_result(made, format, lambda page: say(said))


def show_export(made: "Export", *, format: Format = "text") -> None:
    """Where the export is, and what its proof found.

    Args:
        format: Output for people (text) or programs (json).
    """
    from vitral.app.terminal.screen import print_json, say

    proof = made.proof
    if format == "json":
        print_json({"path": str(made.path), "form": made.form, "proof": proof and proof.plain()})
        return
    say(_("exported: {path} ({form})", path=made.path, form=made.form))
    if proof is None:
        say(_("not proved: the export was not opened in the other library"))
        return
    difference = {
        "reader": proof.reader,
        "difference": f"{proof.greatest_difference:.1e}",
        "prompts": len(proof.prompts),
    }
    say(_("proved: {prompts} prompts in {reader}, logits differ by at most {difference}", **difference))
    if not proof.equal_text:
        say(_("the most probable tokens are not everywhere the same: two of them are that close; see PROOF.json"))


def show_imported(run: "Run") -> None:
    """Where the run is, and what to do with it."""
    from vitral.app.terminal.screen import runnable, say

    origin, tokens = run.sealed.document("corpus")["imported"], run.tokenizer
    say(_("imported: {path} ({form})", path=run.path, form=origin["form"]))
    unused = len(tokens.specials) if tokens.name == "file" else 0
    if unused:
        say(
            ngettext(
                "{count:,} of the {rows:,} rows of the embedding has no token; it is kept, and never written",
                "{count:,} of the {rows:,} rows of the embedding have no token; they are kept, and never written",
                unused,
                count=unused,
                rows=tokens.vocab_size,
            )
        )
    say(runnable(_("continue a text: vitral generate {path} --prompt TEXT", path=run.path)))


@contextmanager
def announced(**given: Any) -> Iterator[Mapping[str, Any]]:
    """The address of the page on the screen, until Ctrl+C ends the server."""

    def announce(address: str) -> None:
        typer.echo(_("page: {address} (Ctrl+C ends it)", address=address))

    try:
        yield {"announce": announce}
    except KeyboardInterrupt:
        complain(_("interrupted"))
        os._exit(130)  # a thread that computes for the page would keep the process


def show_nothing(result: None) -> None:
    """Nothing: the command has no result."""
