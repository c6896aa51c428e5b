"""Modules of the page's script in node: what the browser computes, for comparison with Python."""

import json
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from browser import NODE

WEB = Path(__file__).parents[2] / "web"

LOAD = """
const vm = require("vm"), fs = require("fs");
const [source, body, cases] = JSON.parse(fs.readFileSync(0, "utf8"));
vm.runInThisContext(source);
const rule = new Function("given", "page", body);
process.stdout.write(JSON.stringify(cases.map((given) => rule(given, vitral))));
"""


@cache
def source() -> str:
    entry = 'export * from "./tokens"; export * from "./ngrams";'
    command = [str(WEB / "node_modules" / ".bin" / "esbuild"), "--bundle", "--format=iife", "--global-name=vitral"]
    return subprocess.run(
        [*command, "--target=es2020", "--loader=ts"],
        input=entry,
        cwd=WEB / "src" / "page",
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def in_page(body: str, cases: Sequence[Any]) -> list[Any]:
    """The results of a JavaScript function body, called with each case as `given`, and with the modules as `page`."""
    given = json.dumps([source(), body, list(cases)])
    done = subprocess.run([NODE or "node", "-e", LOAD], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
