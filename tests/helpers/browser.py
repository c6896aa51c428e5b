"""The script of live pages in node: what the browser computes, for comparison with PyTorch."""

import json
import math
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")

LOAD = """
const vm = require("vm"), fs = require("fs");
const [source, body, cases] = JSON.parse(fs.readFileSync(0, "utf8"));
vm.runInThisContext(source);
const SPELLED = { inf: Infinity, "-inf": -Infinity, nan: NaN };
const read = ({ shape, data }) => vitral.tensor(shape, data.map((each) => SPELLED[each] ?? each));
const spelled = (each) => (Number.isFinite(each) ? each : Number.isNaN(each) ? "nan" : each > 0 ? "inf" : "-inf");
const told = (value) => ({ shape: value.shape, data: Array.from(value.data, spelled) });
const tensors = (all) => Object.fromEntries(Object.entries(all).map(([name, each]) => [name, read(each)]));
const rule = new (async () => {}).constructor("given", "tensors", "told", body);
(async () => {
  const made = [];
  for (const given of cases) made.push(await rule(given, tensors, told));
  process.stdout.write(JSON.stringify(made));
})();
"""
RUN = """
const edits = Object.fromEntries(Object.entries(given.edits ?? {}).map(([name, cells]) => [name, (value) => {
  const data = value.data.slice();
  for (const [at, number] of cells) data[at] = number;
  return { shape: value.shape, data };
}]));
const made = vitral.run(given.graph, tensors(given.inputs), edits);
return Object.fromEntries(Object.entries(made).map(([name, each]) => [name, told(each)]));
"""


WEB = Path(__file__).parents[2] / "web"
ESBUILD = WEB / "node_modules" / ".bin" / "esbuild"
needs_web = pytest.mark.skipif(NODE is None or not ESBUILD.exists(), reason="web is not installed")


@cache
def bundled(*modules: str) -> str:
    """A script whose global `vitral` has everything that modules in `web/src` export, such as "page/edits"."""
    entry = "".join(f"export * from './src/{module}';" for module in modules)
    command = [str(ESBUILD), "--bundle", "--format=iife", "--global-name=vitral", "--loader=ts"]
    done = subprocess.run(command, input=entry, cwd=WEB, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_node(body: str, cases: Sequence[Any], *modules: str, source: str | None = None) -> list[Any]:
    """The results of the body of an asynchronous JavaScript function, called with each case as `given`.

    It sees as `vitral` what the committed bundle exports, or what `modules` in `web/src` export; or another `source`.
    """
    committed = resources.files("vitral.report") / "templates" / "live.js"
    if source is None:
        source = bundled(*modules) if modules else committed.read_text(encoding="utf-8")
    given = json.dumps([source, body, list(cases)])
    done = subprocess.run([NODE or "node", "-e", LOAD], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def plain(value: Tensor) -> dict[str, Any]:
    """A tensor as plain data."""
    data = [float(each) if math.isfinite(each) else str(each) for each in value.flatten().tolist()]
    return {"shape": list(value.shape), "data": data}


def as_tensor(told: Mapping[str, Any]) -> Tensor:
    """A tensor from plain data."""
    data = [float(each) for each in told["data"]]
    return torch.tensor(data, dtype=torch.float64).reshape(told["shape"])


def same(mine: Tensor, expected: Tensor, what: str) -> None:
    """Equal up to the rounding of double precision."""
    torch.testing.assert_close(
        mine, expected, rtol=1e-12, atol=1e-12, equal_nan=True, msg=lambda message: f"{what}: {message}"
    )


def run_graphs(cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Tensor]]:
    """The named values of graphs: each case has a `graph`, its `inputs` as tensors, and `edits`, cells by name."""
    written = [{**case, "inputs": {name: plain(value) for name, value in case["inputs"].items()}} for case in cases]
    return [{name: as_tensor(told) for name, told in made.items()} for made in in_node(RUN, written)]


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"


def violations(page: Any) -> list[Any]:
    """What axe-core finds wrong on a page, each with some of its elements; nothing where it is not installed."""
    if not AXE.exists():
        return []
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run()")["violations"]
    return [(each["id"], [node["html"][:150] for node in each["nodes"]]) for each in found]


def driven(page: str, script: str, folder: Path) -> str:
    """The page's HTML after a script has run on it; the page's policy would forbid the script, so it is removed."""
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    assert policy.search(page)
    file = folder / "driven.html"
    file.write_text(policy.sub("", page).replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [CHROMIUM or "chromium", "--headless", "--no-sandbox", "--disable-gpu", profile, "--dump-dom"]
    done = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout
