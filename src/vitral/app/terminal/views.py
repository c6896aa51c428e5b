"""What the terminal shows of results; a keyword parameter of a view is an option that only the command has.

People read what `print` shows of a result in Python; programs read its plain data or its table.
"""

import io
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from vitral.app.arguments import Argument, Digits, Form, Format, Numbers, Option, TableFormat, numbers
from vitral.app.terminal.streams import complain, print_json, prints_unicode, say, tell
from vitral.core.errors import StorageError, UsageError
from vitral.core.language import _, in_language, ngettext

if TYPE_CHECKING:
    from vitral.app.conversation import Conversation
    from vitral.app.exercises import WrittenExercise
    from vitral.app.results import DemoPage, Inspection, Names, Samples
    from vitral.app.run import Run
    from vitral.explanation import CheckReport, Walkthrough
    from vitral.explanation.examples.example import Example
    from vitral.interop import Export
    from vitral.report.graded_class import GradedClass
    from vitral.report.runs import RunList
    from vitral.report.tables import Table

MOST_LISTED = 10
"""Files that are named one by one."""
INSPECTED = {"": "text", ".txt": "text", ".json": "json", ".html": "html", ".htm": "html"}
WALKED = {**INSPECTED, ".md": "markdown", ".tex": "latex"}
"""The forms of a result by the ending of its file."""
NewFile = Annotated[Path | None, Option(read=lambda _, path: None if str(path) == "-" else path)]
"""Where a result goes; - is the screen."""
Kind = Literal["presets", "texts", "studies", "examples", "zoo", "words", "names", "runs"]


def show(result: Any, *, format: TableFormat = "text") -> None:
    """A result for people, for programs or in documents.

    Args:
        format: Output for people (text), programs (json, csv) or documents (markdown, latex).
    """
    if format == "text":
        say(str(result).lstrip("\n"))
    elif format == "json":
        with in_language("en"):  # data has no other language
            print_json(result.plain())
    else:
        say(_table(result, is_data=format == "csv").write(format).rstrip("\n"))


def _table(result: Any, *, is_data: bool) -> "Table":
    """The table of a result; as data it may have more columns."""
    from vitral.report.notebook import form

    if hasattr(result, "shown"):  # the comparisons of a study, whose table is a file
        return result.data if is_data else result.shown
    made: Any = (is_data and form(result, "data")) or form(result, "table")
    return made()


def show_object(result: Any, *, format: Format = "text") -> int:
    """A result that is no table; 1 if it says that something is wrong.

    Args:
        format: Output for people (text) or programs (json).
    """
    show(result, format=format)
    return int(not getattr(result, "healthy", True))


def show_with_page(result: Any, *, out: Path | None = None, format: TableFormat = "text") -> None:
    """A result, and its page.

    Args:
        out: Folder for a page, tables and figures (SVG, PNG, PDF).  [default: none]
        format: Output for people (text), programs (json, csv) or documents (markdown, latex).
    """
    from vitral.report.notebook import form

    write: Any = form(result, "write")
    page = None if out is None else write(out)  # first: the reader of a pipe may leave
    show(result, format=format)
    if page is not None and format == "text":
        tell("page: {path}", path=page)


@contextmanager
def pieces(
    *, format: str, source: Any = (), num_samples: int = 1, num_beams: int | None = None, **given: Any
) -> Iterator[Mapping[str, Any]]:
    """A single text appears as it is made."""
    alone = num_samples == 1 and num_beams is None and format == "text" and not (source or given.get("stats"))
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
    if format == "json":
        print_json(samples.plain())
    else:
        write_text(f"{samples}\n")
    if cut := [len(one.tokens) for one in samples if samples.is_answers and one.finish == "length"]:
        complain(_("without an end, and cut at its greatest length: {tokens:,} tokens", tokens=max(cut)))
    if not stats or samples.way is None:
        return
    tokens, way = sum(len(sample.tokens) for sample in samples), samples.way
    how = _("in C ({found})", found=way.detail) if way.is_in_c else _("by PyTorch: {found}", found=_(way.detail))
    said = _(
        "{tokens:,} tokens in {seconds:.3f} s, {rate:,.0f} tokens/s, {how}",
        tokens=tokens,
        seconds=samples.seconds,
        rate=tokens / max(samples.seconds, 1e-9),
        how=how,
    )
    print(said, file=sys.stderr)


def show_conversation(talk: "Conversation", *, format: Format = "text") -> None:
    """Lines of a person, or of a pipe, and the answers.

    Args:
        format: Output for people (text) or programs (json, an answer a line).
    """
    is_person, is_json = sys.stdin.isatty() and format == "text", format == "json"
    user, answer = (f"{each.strip() or '>'} " if is_person else "" for each in talk.speakers or ("", ""))
    if is_person:
        complain("Ctrl-C ends an answer, Ctrl-D the conversation")
    while line := _line_of_person(user):
        dropped = talk.dropped
        try:
            write_text(answer)
            talk.say(line, len if is_json else write_text)
        except (KeyboardInterrupt, UsageError) as stopped:
            if not is_person:
                raise
            complain(str(stopped) or "interrupted")
        if talk.dropped and not dropped:
            complain("the context is full: the oldest messages are no longer read")
        if talk.is_cut:
            complain("this message is longer than the context: only its end is read")
        if is_json:
            print_json(talk.messages[-1], indent=None)
        else:
            write_text("\n")


def _line_of_person(mark: str) -> str:
    """The next line of standard input that is not empty; empty at its end."""
    write_text(mark)
    return next(filter(None, map(str.strip, iter(sys.stdin.readline, ""))), "")


def show_inspection(
    inspection: "Inspection", *, format: Literal["text", "json", "html"] | None = None, out: NewFile = None
) -> None:
    """A summary on the terminal, or everything in a file.

    Args:
        format: Form of the result.  [default: by the ending of --out (.html, .json), else text]
        out: File to write the result to.  [default: the screen]
    """
    form = _form(INSPECTED, format, out)
    _deliver(inspection.plain() if form == "json" else inspection.page() if form == "html" else str(inspection), out)


def _form(forms: Mapping[str, str], format: str | None, out: Path | None) -> str:
    form = format or forms.get(out.suffix.lower() if out else "")
    if form is None:
        raise UsageError(
            "--out {out}: no form has this ending; use {endings}, or --format",
            out=out,
            endings=", ".join(filter(None, forms)),
        )
    return form


@contextmanager
def into_new_file(
    forms: Mapping[str, str], *, format: Any = None, out: Path | None = None, **given: Any
) -> Iterator[Mapping[str, Any]]:
    """A file that could not be written, or has the ending of no form, is refused before anything is computed."""
    if out is not None:
        from vitral.core.files import require_free

        require_free(out, is_in_folder=True)
        _form(forms, format, out)
    yield {}


def _deliver(made: Any, out: Path | None, indent: int | None = None) -> None:
    """Write a text, or plain data, into a new file or on the screen."""
    if not isinstance(made, str):
        import json

        as_ascii = out is None and not prints_unicode()
        made = json.dumps(made, indent=indent, ensure_ascii=as_ascii, allow_nan=False)
    text = made.rstrip("\n") + "\n"
    if out is None:
        sys.stdout.write(text)
        return
    from vitral.explanation.examples.by_name import write_new

    tell("written: {path}", path=write_new(out, text))


def show_walkthrough(
    walkthrough: "Walkthrough",
    *,
    whole: Annotated[bool, Option("--all")] = False,
    digits: Digits = 3,
    format: Form | None = None,
    out: NewFile = None,
) -> None:
    """A walkthrough in one form, on the screen or in a new file.

    Args:
        whole: Write all rows, columns and terms of sums.  [default: those that matter most]
        digits: Digits after the decimal point.
        format: Form of the walkthrough.  [default: by the ending of --out (.html, .json, .md, .tex), else text]
        out: File to write the walkthrough to.  [default: the screen]
    """
    from vitral.explanation import to_plain, to_text
    from vitral.report.live import live_tables
    from vitral.report.walkthrough import to_latex, to_markdown, to_page

    how: dict[str, Any] = {"digits": digits, "whole": whole}
    form = _form(WALKED, format, out)
    if form == "html":  # the given numbers of a worked example can be edited
        how["before"] = live_tables(walkthrough, digits)
    writers = {"text": to_text, "json": to_plain, "html": to_page, "markdown": to_markdown, "latex": to_latex}
    _deliver(writers[form](walkthrough, **how), out, indent=2)


def show_checks(
    checked: "Iterable[tuple[str, Callable[[], CheckReport]]]",
    *,
    fix: bool = False,
    out: Path | None = None,
    format: Format = "text",
) -> int:
    """Each report; an example that cannot be read is one line, and the others go on.

    Args:
        fix: Write each corrected example beside it, in its format.  [default: only report]
        out: With --fix: folder to write to.  [default: beside the example]
        format: Output for people (text) or programs (json).
    """
    from vitral.app.facade.explain import corrected
    from vitral.explanation import phrases

    if out is not None and not fix:
        raise UsageError("check: --out goes with --fix")
    data, code = list[dict[str, Any]](), 0
    for name, check in checked:
        shown: dict[str, Any] = {}
        try:
            report = check()
            code = max(code, int(report.worst in ("follows", "wrong")))
            for note in report.example.document.notes:
                complain(f"{name}: {note}")
            if format == "text":
                say(f"{name if report.example.path else ''}: {report}\n".removeprefix(": "))
            shown |= report.plain()
            if fix and (written := corrected(report, out)) is not None:
                shown["corrected"] = str(written)
                if format == "text":
                    say(phrases()("check.fixed", path=written))
        except (UsageError, StorageError) as error:
            complain(str(error))
            code = max(code, error.exit_code)
            with in_language("en"):
                shown = shown or {"file": name, "error": str(error)}
        data.append(shown)
    if format == "json":
        print_json(data)
    return code


def show_grades(
    graded: "GradedClass",
    *,
    format: Literal["text", "json", "csv", "html", "markdown"] = "text",
    out: Path | None = None,
    marked: Path | None = None,
) -> int:
    """The class in a table, and what was written.

    Args:
        format: Output for people (text, html, markdown) or programs (json, csv).
        out: File for the page of the class (.html).
        marked: Folder for a page of each sheet with its marks.
    """
    from vitral.explanation.grading.sheets import FailedSheet

    if format == "html":
        sys.stdout.write(graded.page())
    elif format == "markdown":
        say(graded.markdown())
    else:
        show(graded, format=format)
    for path in filter(None, (out, marked) if format == "text" else ()):
        tell("written: {path}", path=path)
    for sheet in graded.unreadable:
        complain(_(sheet.error))
    failed = any(isinstance(sheet, FailedSheet) for sheet in graded.unreadable)
    return 70 if failed else 2 * bool(graded.unreadable)


@contextmanager
def sheets_listed(**given: Any) -> Iterator[Mapping[str, Any]]:
    """The files of sheets and keys on the screen."""

    def listed(written: "WrittenExercise") -> None:
        if len(written.paths) <= MOST_LISTED:
            for path in written.paths:
                tell("written: {path}", path=path)
        else:
            for folder, n in Counter(path.parent for path in written.paths).items():
                tell("written: {n:,} files in {folder}", n=n, folder=folder)
        for why in written.missing:
            say(why)

    yield {"on_written": listed}


def show_exercise(
    exercise: "Example",
    *,
    kind: str | None = None,
    out: NewFile = None,
    head: Annotated[Numbers, Option(parsed=str, read=numbers, default="all")] = None,
    query: int | None = None,
    key: int | None = None,
    column: int | None = None,
    whole: Annotated[bool, Option("--all")] = False,
    digits: Digits = 3,
    format: Form | None = None,
) -> None:
    """The file, or the solution.

    Args:
        head: Heads to show, from 1, as in 1 or 1,2 or all.
        query: Query position to work through.  [default: the middle one; the last with --ending]
        key: Key position to work through.  [default: the most attended]
        column: Feature to work through.  [default: the first]
        whole: Write all rows, columns and terms of sums.  [default: those that matter most]
        digits: Digits after the decimal point.
        format: Form of the walkthrough.  [default: by the ending of --out (.html, .json, .md, .tex), else text]
    """
    from vitral.app.facade.explain import choice_of
    from vitral.explanation import walk_example

    file = exercise.path
    if file is not None:
        tell("written: {path}", path=file)
        tell("fill in the question marks, then run: vitral check {path}", path=file)
    if (file is None and (kind is None or out is None)) or (file is not None and out is not None):
        choice = choice_of(head, query, key, column, first=1)
        show_walkthrough(walk_example(exercise, choice), whole=whole, digits=digits, format=format, out=out)


def show_demo(page: "DemoPage") -> None:
    """A text by the model, the verdicts, the pages, and commands to try."""
    say(f"\n{page}")


def show_export(made: "Export", *, format: Format = "text") -> None:
    """Where the export is, and what its proof found.

    Args:
        format: Output for people (text) or programs (json).
    """
    proof = made.proof
    if format == "json":
        print_json({"path": str(made.path), "form": made.form, "proof": proof and proof.plain()})
        return
    tell("exported: {path} ({form})", path=made.path, form=made.form)
    tell("it has the weights, the vocabulary, and the name and losses of the text, and no passage of it")
    if proof is None:
        tell("not proved: the export was not opened in the other library")
        return
    tell(
        "proved: {prompts} prompts in {reader}, logits differ by at most {difference}",
        prompts=len(proof.prompts),
        reader=proof.reader,
        difference=f"{proof.greatest_difference:.1e}",
    )
    if not proof.equal_text:
        tell("the most probable tokens are not everywhere the same: two of them are that close; see PROOF.json")


def show_imported(run: "Run") -> None:
    """Where the run is, and what to do with it."""
    form, tokens = run.sealed.document("corpus")["imported"]["form"], run.tokenizer
    tell("imported: {path} ({form})", path=run.path, form=form)
    if tokens.name == "file" and (unused := len(tokens.specials)):
        say(
            ngettext(
                "{count:,} of the {rows:,} rows of the embedding has no token; it is kept, and never written",
                "{count:,} of the {rows:,} rows of the embedding have no token; they are kept, and never written",
                unused,
                count=unused,
                rows=tokens.vocab_size,
            )
        )
    tell("continue a text: vitral generate {path} --prompt TEXT", path=run.path)


def show_nothing(result: None) -> None:
    """Nothing: the command has no result."""


def list_names(
    kind: Annotated[Kind | None, Argument("KIND", Kind)] = None,
    folder: Annotated[Path | None, Argument("FOLDER|WORD", Path)] = None,
    *,
    sort: Literal["loss", "time", "name"] | None = None,
    text: str | None = None,
    times: bool = False,
    out: Path | None = None,
) -> "RunList | list[Names]":
    """List presets, texts, studies, worked examples, the zoo, words of the field, names of activations, or runs.

    Other commands accept these names; words are explained.

    Args:
        kind: Kind of names.  [default: all kinds but words, names and runs]
        folder: Of runs: where to look, also in nested folders; of words, the one to show.  [default: runs, all words]
        sort: Of runs: best loss first (loss), newest first (time), or by name.  [default: loss]
        text: Of runs: only those on texts whose name contains this.
        times: Of studies: also the times that each budget takes on this machine.
        out: Of runs: folder for a page with curves, tables and figures.  [default: none]
    """
    import vitral

    if times and kind != "studies":
        raise UsageError("--times is for vitral list studies")
    if kind == "runs":
        return vitral.list_runs(folder or "runs", order=sort or "loss", text=text)
    if kind == "words" and folder is not None:
        return [vitral.list_words(str(folder))]
    options = {"FOLDER": folder, "--sort": sort, "--text": text, "--out": out}
    if given := [name for name, value in options.items() if value is not None]:
        raise UsageError("{option} is for vitral list runs", option=given[0])
    if times:
        complain("timing a training step of every model …")
        return [vitral.list_studies(times=True)]
    kinds = [kind] if kind else ["presets", "texts", "studies", "examples", "zoo"]
    return [getattr(vitral, f"list_{one}")() for one in kinds]


def show_names(listed: Any, *, out: Path | None = None, format: TableFormat = "text") -> None:
    """The names of each kind with their descriptions; runs in a table.

    Args:
        format: Output for people (text), programs (json, csv) or documents (markdown, latex).
    """
    from vitral.report.tables import Column, Table

    if not isinstance(listed, list):
        show_with_page(listed, out=out, format=format)
    elif format == "json":
        print_json({names.kind: names.plain() for names in listed})
    elif format == "text":
        for names in listed:
            say(f"{names}\n".lstrip("\n"))
    else:
        columns = (Column("kind", "kind"), *listed[0].table().columns)
        say(Table("", columns, [row for names in listed for row in names.records()]).write(format).rstrip("\n"))
