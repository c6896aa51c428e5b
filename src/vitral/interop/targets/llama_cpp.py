"""llama.cpp, in a process of its own: node-llama-cpp, which npm installs without a compiler."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.interop.proof import Opened, cannot_open

FOLDER_KEY = "VITRAL_LLAMA_CPP"
"""Environment variable: a folder in which `npm install node-llama-cpp` was run."""
READER = "llama.cpp"
_SCRIPT = Path(__file__).parent / "llama_cpp_in_node.js"


def require_binding() -> tuple[str, list[str]]:
    """The version of node-llama-cpp, and the command that answers questions about the file that is named after it.

    Raises:
        UsageError: it is not installed.
    """
    named = os.environ.get(FOLDER_KEY)
    try:
        node, npm = (shutil.which(program) or "" for program in ("node", "npm"))
        modules = Path(named, "node_modules") if named else Path(_said_by(npm, "root", "-g"))
        module = modules / "node-llama-cpp"
        version = str(json.loads((module / "package.json").read_bytes())["version"])
    except (OSError, subprocess.SubprocessError):
        node, version, module = "", "", Path()
    if not node:
        raise UsageError(
            "the proof opens the file in llama.cpp by node-llama-cpp, which is not installed: npm install -g "
            "node-llama-cpp, or npm install node-llama-cpp in a folder that {key} names, or --no-proof",
            key=FOLDER_KEY,
        )
    return version, [node, str(_SCRIPT), str((module / "dist" / "index.js").resolve())]


def _said_by(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30, encoding="utf-8")
    return done.stdout.strip()


def opened(path: Path, context_length: int) -> Opened:
    """A GGUF file in llama.cpp.

    Raises:
        UsageError: it cannot be opened.
    """
    version, command = require_binding()
    process = _Process([*command, str(path.resolve()), str(context_length)])
    try:
        process.ask({}, "ready")
    except BaseException:
        process.end()
        raise

    def logits(tokens: Tensor) -> Tensor:
        ids = tokens[0].tolist()
        raw = base64.b64decode(process.ask({"logits": ids}, "logits"))
        return torch.from_numpy(np.frombuffer(raw, dtype="<f4").reshape(1, len(ids), -1).copy())

    return Opened(
        logits,
        lambda text: process.ask({"text": text}, "ids"),
        text=lambda ids: process.ask({"ids": ids}, "text"),
        greedy=lambda ids, count: process.ask({"greedy": ids, "count": count}, "ids"),
        versions={"node-llama-cpp": version},
        close=process.end,
    )


class _Process:
    """Questions and answers, each a line of JSON."""

    def __init__(self, command: list[str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process runs)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True, encoding="utf-8"
        )

    def ask(self, question: Mapping[str, Any], key: str) -> Any:
        """The answer's value of a key.

        Raises:
            UsageError: the process ended, or answers with an error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            raise cannot_open(READER, RuntimeError(self._last_words())) from None
        if not isinstance(answer, dict) or key not in answer:
            said = answer.get("error") if isinstance(answer, dict) else None
            raise cannot_open(READER, RuntimeError(said or _("no {key} in its answer", key=key)))
        return answer[key]

    def _last_words(self) -> str:
        self._process.kill()
        self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
        self.end()
        return lines[-1] if lines else f"exit status {self._process.returncode}"

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._said):
            with contextlib.suppress(OSError):  # a question that it no longer read
                if file is not None:
                    file.close()
