"""Pages that compute: `bundle`, as the command `vitral bundle`."""

from dataclasses import dataclass
from pathlib import Path

from vitral.core.checked import checked
from vitral.core.errors import UsageError
from vitral.core.files import create_durably
from vitral.lab.opened import path_of
from vitral.lab.run import Run, Which
from vitral.page import page_content, page_document
from vitral.runs import load_run


@dataclass(frozen=True)
class Bundle:
    """A page that carries a run.

    Attributes:
        path: the HTML file.
        size: its bytes.
    """

    path: Path
    size: int


@checked(first=True)
def bundle(run: str | Path | Run, out: str | Path | None = None, *, checkpoint: Which = "best") -> Bundle:
    """Write a run as one HTML file that computes its model in any browser, without a server or a network.

    Args:
        run: a folder, or a run.
        out: the file to create; NAME.html in the current folder if None, for a run in a folder NAME.
        checkpoint: "best" or "last".

    Raises:
        UsageError: not a run, the file exists already, or the model has no graph.
        StorageError: writing to disk failed.
    """
    folder = path_of(run)
    name = folder.resolve().name
    path = Path(f"{name}.html") if out is None else Path(out)
    content = page_document(page_content(load_run(folder, checkpoint), name)).encode("utf-8")
    try:
        create_durably(path, content)
    except FileExistsError:
        raise UsageError("{path}: exists already; choose another name with --out", path=path) from None
    return Bundle(path, len(content))
