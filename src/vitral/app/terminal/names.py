"""The command list: everything that has a name, and the runs below a folder."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

from vitral.app.options import Argument, TableFormat
from vitral.core.errors import UsageError
from vitral.core.language import N_, _, in_language

USED_BY = {
    "presets": N_("vitral train NAME"),
    "texts": N_("vitral corpus NAME, vitral train NAME"),
    "studies": N_("vitral study NAME, vitral list studies --times"),
    "examples": N_("vitral explain NAME, vitral check NAME"),
}
"""By kind of names, the commands that take one."""
Kind = Literal["presets", "texts", "studies", "examples", "runs"]


def list_names(
    kind: Annotated[Kind | None, Argument("KIND", Kind)] = None,
    folder: Annotated[Path | None, Argument("FOLDER", Path)] = None,
    *,
    sort: Literal["loss", "time", "name"] | None = None,
    text: str | None = None,
    times: bool = False,
    out: Path | None = None,
) -> Any:
    """List presets, texts, studies and worked examples, or runs.

    Other commands accept these names.

    Args:
        kind: Kind of names.  [default: all kinds but runs]
        folder: Of runs: where to look, also in nested folders.  [default: runs]
        sort: Of runs: best loss first (loss), newest first (time), or by name.  [default: loss]
        text: Of runs: only those on texts whose name contains this.
        times: Of studies: also the times that each budget takes on this machine.
        out: Of runs: folder for a page with curves, tables and figures.  [default: none]
    """
    import vitral.app
    from vitral.app.terminal.screen import console

    if times and kind != "studies":
        raise UsageError("--times is for vitral list studies")
    if kind == "runs":
        return vitral.app.list_runs(folder or "runs", order=sort or "loss", text=text)
    options = {"FOLDER": folder, "--sort": sort, "--text": text, "--out": out}
    if given := [name for name, value in options.items() if value is not None]:
        raise UsageError("{option} is for vitral list runs", option=given[0])
    kinds = [kind] if kind else [*USED_BY]
    said = _("timing a training step of every model …")
    with console().status(said) if times else nullcontext(), in_language("en"):  # names are data
        return {one: getattr(vitral.app, f"list_{one}")(**({"times": True} if times else {})) for one in kinds}


def show_names(found: Any, *, out: Path | None = None, format: TableFormat = "text") -> None:
    """The names of each kind with their descriptions; runs in a table.

    Args:
        format: Output for people (text), programs (json, csv) or documents (markdown, latex).
    """
    from vitral.app.terminal.screen import print_data, print_form, print_json, print_sections, say
    from vitral.app.terminal.views import print_page, print_result
    from vitral.report.tables import Column, DataTable

    if not isinstance(found, dict):
        page = None if out is None else found.write(out)  # first: the reader of a pipe may leave
        print_result(found, format, lambda runs: print_data(runs.varied_table()))
        for line in found.advice if format == "text" else ():
            say(line)
        print_page(page, format)
    elif format == "json":
        print_json({kind: names.plain() for kind, names in found.items()})
    elif format == "text":
        for kind, names in found.items():
            print_sections([names.table()])
            say(f"{_(USED_BY[kind])}\n")
    else:
        columns = (
            Column("kind", "kind"),
            Column("name", "name", is_prose=True),
            Column("description", "description", _, is_prose=True),
        )
        rows = [{"kind": kind, **entry} for kind, names in found.items() for entry in names.plain()]
        print_form(DataTable("", columns, rows), format)
