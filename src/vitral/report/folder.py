"""A folder of pages and figures: all made first, then written together, and listed with their hashes.

Each file is written beside its place and renamed, the manifest last. A process that is killed while it draws leaves the
former report; one that is killed while it writes leaves whole files, old and new, and the same command writes the rest.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.core.errors import UsageError
from vitral.core.files import MANIFEST, as_json, make, manifest, replace_durably, storage, sweep
from vitral.report.sections import Figure
from vitral.report.tables import ENDINGS, Table

if TYPE_CHECKING:
    import matplotlib.figure


class ReportFolder:
    """A report that is being made.

    Attributes:
        folder: where it will be written; None for a page alone, whose figures are only on it.
    """

    def __init__(self, folder: Path | None = None, figures: str = "") -> None:
        """Start an empty report.

        Args:
            folder: where it will be written.
            figures: the folder inside it for figures; itself if empty.
        """
        self.folder = folder
        self._figures = f"{figures}/" if figures else ""
        self._files: dict[str, bytes] = {}

    def figure(self, drawn: "matplotlib.figure.Figure", name: str, caption: str, alt: str) -> Figure:
        """Add a figure in every format, and return it as a section of a page.

        Args:
            drawn: the figure.
            name: of its files, without ending.
            caption: the sentence below it.
            alt: its content in words.
        """
        from vitral.report.style import FORMATS, drawn_bytes  # matplotlib is slow to import, and tables need none

        files = {kind: drawn_bytes(drawn, kind) for kind in (FORMATS if self.folder else ("svg",))}
        self._files |= {f"{self._figures}{name}.{kind}": content for kind, content in files.items()}
        return Figure(files["svg"].decode(), caption, alt, path=f"{self._figures}{name}.svg")

    def add(self, name: str, text: str) -> None:
        """Add a page or a table."""
        self._files[name] = text.encode()

    def add_json(self, name: str, plain: Any) -> None:
        """Add plain data as JSON."""
        self._files[name] = as_json(plain)

    def add_table(self, name: str, table: Table, data: Table | None = None) -> None:
        """Add a table as CSV, Markdown and LaTeX; the CSV of `data`, if its words differ from those for people."""
        for form in ("csv", "markdown", "latex"):
            self.add(f"{name}.{ENDINGS[form]}", (data or table if form == "csv" else table).write(form))

    def write(self, *, listed: bool = True) -> None:
        """Write every file, and if `listed` the list of their hashes; other files in the folder stay.

        Raises:
            UsageError: a link or something else that is no file of ours stands in the way.
            StorageError: writing to disk failed; the files there are whole, old or new.
        """
        assert self.folder is not None
        with storage(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        for name in (*self._files, *([MANIFEST] if listed else [])):
            path = self.folder / name
            if path.parent != self.folder:
                make(path.parent)
            sweep(path.parent, f".{path.name}.")  # and nothing else: the folder may be the user's own
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise UsageError("{path}: is not a regular file; move it away", path=path)
        for name, content in self._files.items():
            replace_durably(self.folder / name, content)
        if listed:
            replace_durably(self.folder / MANIFEST, manifest(self._files))
