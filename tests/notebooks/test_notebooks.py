"""The notebooks of `docs/notebooks` run, each in a fresh kernel and an empty folder; and a cell can be interrupted."""

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # the quick tier has no notebooks
    from jupyter_client.blocking.client import BlockingKernelClient
    from jupyter_client.manager import KernelManager

pytestmark = pytest.mark.merge

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
FULL = os.environ.get("VITRAL_FULL") == "1"
STEPS = re.compile(r'"(steps|evaluate_every)": \d+')
LONGEST = 600
"""Seconds after which a cell has certainly hung."""
BEGINNING = 'value="0.0000"'
"""The bar of a training without a step."""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Iterator[tuple[KernelManager, BlockingKernelClient]]":
    """A kernel of this Python in an empty folder, which reads and writes no settings of the user."""
    from jupyter_client.manager import start_new_kernel

    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    manager, client = start_new_kernel(cwd=str(tmp_path / "work"))
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(client: "BlockingKernelClient", source: str) -> list[dict[str, Any]]:
    """The outputs of a cell: content of messages that display, print, or are an error."""
    outputs: list[dict[str, Any]] = []

    def keep(message: dict[str, Any]) -> None:
        if message["msg_type"] in ("execute_result", "display_data", "stream", "error"):
            outputs.append({"kind": message["msg_type"], **message["content"]})

    client.execute_interactive(source, output_hook=keep, timeout=LONGEST)
    return outputs


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, kernel: "tuple[KernelManager, BlockingKernelClient]") -> None:
    import nbformat

    read = nbformat.read(notebook, as_version=4)
    for cell in read.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [], "notebooks are committed without outputs: run them"
            source = cell.source if FULL else STEPS.sub(r'"\1": 12', cell.source)  # how well it learns is not asked
            outputs = run(kernel[1], source)
            errors = [output for output in outputs if output["kind"] == "error"]
            assert not errors, f"{cell.source}\n{errors}"
            told = [output for output in outputs if output["kind"] == "stream" and output["name"] == "stderr"]
            assert not told, f"{cell.source}\n{told}"


def test_a_cell_that_is_interrupted_saves_and_says_how_to_go_on(
    kernel: "tuple[KernelManager, BlockingKernelClient]",
) -> None:
    manager, client = kernel
    long = 'run = vitral.train("sample", "run", model=model, training={"steps": 10_000, "batch_size": 4})'
    assert not run(client, 'import vitral\nmodel = {"d_model": 12, "num_heads": 2, "context_length": 16}')
    client.execute(long)
    outputs: list[dict[str, Any]] = []
    interrupted, ended = False, time.monotonic() + LONGEST
    while time.monotonic() < ended:
        try:
            message = client.get_iopub_msg(timeout=1)
        except Empty:
            continue
        if BEGINNING not in message["content"].get("data", {}).get("text/html", BEGINNING) and not interrupted:
            interrupted = True
            manager.interrupt_kernel()
        if message["msg_type"] == "error":
            outputs.append(message["content"])
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle" and interrupted:
            break
    assert [output["ename"] for output in outputs] == ["Interrupted"]
    assert "vitral.resume('run')" in outputs[0]["evalue"]
    assert "vitral.resume" in "".join(outputs[0]["traceback"])
    assert "checked.py" not in "".join(outputs[0]["traceback"])
    assert not run(client, 'step = vitral.load("run", "last").step\nassert step > 0')
    another = 'vitral.train("sample", "another", model=model, training={"steps": 2, "evaluate_every": 2}).step'
    assert run(client, another)[-1]["data"]["text/plain"] == "2"
