"""Pages that compute: `bundle`, as the command `vitral bundle`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitral.core.checked import Natural, checked
from vitral.core.errors import UsageError
from vitral.core.files import create_durably, storage
from vitral.lab.opened import path_of
from vitral.lab.run import Run, Which
from vitral.page import page_content, page_document
from vitral.page.server.serving import serve
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


@checked
def bundle(
    run: str | Path | Run,
    out: str | Path | None = None,
    *,
    checkpoint: Which | None = None,
    corpus: str | Path | None = None,
    ablations: bool | None = None,
) -> Bundle:
    """Write a run as one HTML file that computes its model in any browser, without a server or a network.

    Args:
        run: a folder, or a run.
        out: the file to create; NAME.html in the current folder if None, for a run in a folder NAME.
        checkpoint: "best" or "last"; if None, that of the loaded run, else "best".
        corpus: the run's text, if it is no longer where it was: a file, a folder or a name.
        ablations: whether to measure on the test split what each part is worth; if None, where it costs a few seconds.

    Raises:
        UsageError: not a run, the file exists already, the page would be too large, the model has no graph, or its
            tokenizer runs in Python only.
        StorageError: writing to disk failed.
    """
    folder = path_of(run)
    name = folder.resolve().name
    path = Path(f"{name}.html") if out is None else Path(out)
    _require_free(path)
    if isinstance(run, Run):
        checkpoint, corpus = checkpoint or run.which, run.corpus if corpus is None else corpus
    loaded = load_run(folder, checkpoint or "best")
    made = page_content(loaded, name, None if corpus is None else str(corpus), ablated=ablations)
    content = page_document(made).encode("utf-8")
    try:
        create_durably(path, content)
    except FileExistsError:
        raise _taken(path) from None
    return Bundle(path, len(content))


def _require_free(path: Path) -> None:
    """Say before anything is computed that the file cannot be created.

    Raises:
        UsageError: something has its name.
        StorageError: there is no such folder.
    """
    if os.path.lexists(path):
        raise _taken(path)
    with storage(path):
        os.stat(path.parent)


def _taken(path: Path) -> UsageError:
    return UsageError("{path}: exists already and was not overwritten; choose another name with --out", path=path)


@checked
def open_(
    runs: str | Path | Run | Sequence[str | Path | Run],
    *,
    checkpoint: Which = "best",
    corpus: str | Path | None = None,
    port: Natural = 0,
    browser: bool = True,
) -> None:
    """Serve runs as a page on this machine until it is interrupted: type a sentence, see everything.

    Args:
        runs: a folder or a run, or several.
        checkpoint: "best" or "last".
        corpus: the text of a run, if it is no longer where it was: a file, a folder or a name.
        port: 0 takes a free one.
        browser: whether to open the address in the browser; it is printed anyway.

    Raises:
        UsageError: not a run, the extra `serve` is not installed, or the port is taken.
    """
    listed = [runs] if isinstance(runs, str | Path | Run) else list(runs)
    if not listed:
        raise UsageError("open_: at least one run is needed")
    where = None if corpus is None else str(corpus)
    serve([path_of(run) for run in listed], checkpoint=checkpoint, corpus=where, port=port, browser=browser)
