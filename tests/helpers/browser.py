"""The script of live pages in node: what the browser computes, for comparison with PyTorch."""

import json
import math
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from importlib import resources
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
const rule = new Function("given", "tensors", "told", body);
process.stdout.write(JSON.stringify(cases.map((given) => rule(given, tensors, told))));
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


def in_node(body: str, cases: Sequence[Any]) -> list[Any]:
    """The results of a JavaScript function body, called with each case as `given`."""
    source = (resources.files("vitral.figures") / "templates" / "live.js").read_text(encoding="utf-8")
    given = json.dumps([source, body, list(cases)])
    done = subprocess.run([NODE or "node", "-e", LOAD], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def plain(value: Tensor) -> dict[str, Any]:
    """A tensor as plain data."""
    data = [float(each) if math.isfinite(each) else str(float(each)) for each in value.flatten().tolist()]
    return {"shape": list(value.shape), "data": data}


def as_tensor(told: Mapping[str, Any]) -> Tensor:
    """A tensor from plain data."""
    data = [float(each) for each in told["data"]]
    return torch.tensor(data, dtype=torch.float64).reshape(told["shape"])


def run_graphs(cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Tensor]]:
    """The named values of graphs: each case has a `graph`, its `inputs` as tensors, and `edits`, cells by name."""
    written = [{**case, "inputs": {name: plain(value) for name, value in case["inputs"].items()}} for case in cases]
    return [{name: as_tensor(told) for name, told in made.items()} for made in in_node(RUN, written)]
