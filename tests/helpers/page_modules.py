"""The page's script in node: what the browser computes, for comparison with Python."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from browser import NODE

from vitral.page.document import asset

LOAD = """
const vm = require("vm"), fs = require("fs");
const [source, body, cases] = JSON.parse(fs.readFileSync(0, "utf8"));
vm.runInThisContext(source);
const rule = new (async () => {}).constructor("given", "page", body);
(async () => {
  const made = [];
  for (const given of cases) made.push(await rule(given, vitralPage));
  process.stdout.write(JSON.stringify(made));
})();
"""


def in_page(body: str, cases: Sequence[Any]) -> list[Any]:
    """The results of the body of an async JavaScript function of `given`, each case, and of `page`, the script."""
    given = json.dumps([asset("page.js"), body, list(cases)])
    done = subprocess.run([NODE or "node", "-e", LOAD], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
