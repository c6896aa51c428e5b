"""A folder of pages and figures: all made first, then written together, and listed with their hashes.

Each file is written beside its place and renamed, the manifest last. A process that is killed while it draws leaves the
former report; one that is killed while it writes leaves whole files, old and new, and the same command writes the rest.
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.core.errors import UsageError, reason
from vitral.core.files import make, names, read, replace_durably, storage, sweep
from vitral.core.language import N_
from vitral.core.seals import listing, sealed_json, unsealed_json
from vitral.figures.sections import Figure
from vitral.figures.tables import ENDINGS, DataTable

if TYPE_CHECKING:
    import matplotlib.figure

MANIFEST = "MANIFEST.json"
FORMAT = 1
MOST_MANIFEST = 1 << 22
"""Maximum bytes of a manifest; more than ten thousand files."""
MOST_FILE = 1 << 28
"""Maximum bytes of a page or a figure."""


class ReportFolder:
    """A report that is being made.

    Attributes:
        folder: where it will be written.
    """

    def __init__(self, folder: Path, figures: str = "") -> None:
        """Start an empty report.

        Args:
            folder: where it will be written.
            figures: the folder inside it for figures; itself if empty.
        """
        self.folder = folder
        self._figures = f"{figures}/" if figures else ""
        self._files: dict[str, bytes] = {}

    def figure(self, drawn: "matplotlib.figure.Figure", name: str, caption: str, alt: str) -> Figure:
        """Add a figure as SVG, PNG and PDF, and return it as a section of a page.

        Args:
            drawn: the figure.
            name: of its files, without ending.
            caption: the sentence below it.
            alt: its content in words.
        """
        from vitral.figures.style import figure_files  # matplotlib is slow to import, and tables need none

        files = figure_files(drawn, name)
        self._files |= {f"{self._figures}{file}": content for file, content in files.items()}
        return Figure(files[f"{name}.svg"].decode(), caption, alt, path=f"{self._figures}{name}.svg")

    def add(self, name: str, text: str) -> None:
        """Add a page or a table."""
        self._files[name] = text.encode()

    def add_json(self, name: str, plain: Any) -> None:
        """Add plain data as JSON."""
        self.add(name, json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def add_table(self, name: str, table: DataTable, data: DataTable | None = None) -> None:
        """Add a table as CSV, Markdown and LaTeX; the CSV of `data`, if its words differ from those for people."""
        for form in ("csv", "markdown", "latex"):
            self.add(f"{name}.{ENDINGS[form]}", (data or table if form == "csv" else table).write(form))

    def write(self, *, manifest: bool = True) -> None:
        """Write every file, and with `manifest` the list of their hashes; other files in the folder stay.

        Raises:
            UsageError: a link or something else that is no file of ours stands in the way.
            StorageError: writing to disk failed; the files there are whole, old or new.
        """
        paths = [self.folder / name for name in (*self._files, *([MANIFEST] if manifest else []))]
        with storage(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if path.parent != self.folder:
                make(path.parent)
            sweep(path.parent, f".{path.name}.")  # and nothing else: the folder may be the user's own
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise UsageError("{path}: is not a regular file; move it away", path=path)
        for name, content in self._files.items():
            replace_durably(self.folder / name, content)
        if manifest:
            replace_durably(self.folder / MANIFEST, sealed_json({"format": FORMAT, "files": listing(self._files)}))


def check_report(folder: Path) -> list[str]:
    """Complaints about a report folder, one line each: files that are missing or were changed since they were written.

    A folder that does not exist, or is empty, has no report and no complaint.
    """
    try:
        if not names(folder):
            return []
        if MANIFEST not in names(folder):
            complaint = N_("{name} is missing: the report was not finished, or is of an earlier Vitral; write it again")
            return [complaint.format(name=MANIFEST)]
        listed = _listed(read(folder / MANIFEST, MOST_MANIFEST))
    except (UsageError, ValueError, OSError) as error:
        return [N_("{name}: {what}").format(name=MANIFEST, what=reason(error))]
    return [complaint for name, facts in listed.items() if (complaint := _complaint(folder, name, facts))]


def _listed(raw: bytes) -> dict[str, Any]:
    manifest = unsealed_json(raw)
    if manifest.get("format") != FORMAT or not isinstance(manifest.get("files"), dict):
        raise ValueError(
            N_("it is of format {found!a:.40}, this Vitral reads {format}").format(
                found=manifest.get("format"), format=FORMAT
            )
        )
    return manifest["files"]


def _complaint(folder: Path, name: str, facts: Any) -> str:
    try:
        if not os.path.lexists(folder / name):
            return N_("{name!a:.80}: is missing").format(name=name)
        content = read(folder / name, MOST_FILE)
    except (UsageError, ValueError, OSError) as error:
        return N_("{name!a:.80}: {what}").format(name=name, what=reason(error))
    same = listing({name: content})[name] == facts
    return "" if same else N_("{name!a:.80}: was changed since it was written").format(name=name)
