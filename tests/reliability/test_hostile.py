"""Files made to harm: refused soon and in little memory; nothing else is opened, started or written."""

import contextlib
import io
import json
import os
import pickle
import random
import re
import resource
import shutil
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.children import ON_LINUX, ended, forked
from tests.reliability.conftest import STEPS, Tally, last_bytes, trials
from tests.reliability.damages import Tree, is_one_line
from tests.training.conftest import at, interrupt
from vitral.app.run import Run
from vitral.core.errors import UsageError, VitralError
from vitral.core.files import as_json, sealed_json, sha256
from vitral.doctor.folders import examine_run
from vitral.report.run import write_run_report
from vitral.runs import LoadedRun, RunFolder, load_run
from vitral.runs.checkpoint import FILES, FORMAT, MANIFEST
from vitral.runs.config import comparable
from vitral.training import RunConfig, resume, train

pytestmark = ON_LINUX

SECONDS = 5
FORBIDDEN = ("subprocess", "socket", "os.exec", "os.fork", "os.system", "pickle", "ctypes")
MEGABYTES = 100
STEP = f"steps/step-{STEPS - 1:08d}"
"""The only checkpoint of the run: one step is left."""

Harm = Callable[[Path], object]


class Payload:
    """What a pickle would call."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/vitral-was-here",)


def described(tensors: dict[str, Any], data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with this description."""
    header = json.dumps(tensors).encode()
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def sealed(run: Path, **content: bytes) -> None:
    """Put content in the place of files of the checkpoint, with a manifest that agrees."""
    folder = run / STEP
    for name, data in content.items():
        (folder / name.replace("_", ".")).write_bytes(data)
    raw = {name: (folder / name).read_bytes() for name in FILES}
    files = {name: {"bytes": len(data), "sha256": sha256(data)} for name, data in raw.items()}
    said = {"format": FORMAT, "files": files}
    (folder / MANIFEST).write_bytes(as_json({**said, "sha256": sha256(as_json(said))}))


def zipped() -> bytes:
    """A file of some kilobytes that unpacks to a hundred megabytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10**8)
    return made.getvalue()


def tensor(shape: list[int], begin: int = 0, dtype: str = "F32") -> dict[str, Any]:
    """One entry of a description."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + 4]}


def not_finite(run: Path) -> None:
    raw = (run / STEP / "model.safetensors").read_bytes()
    sealed(run, model_safetensors=raw[:-4] + b"\0\0\xc0\x7f")


def written(raw: bytes, path: Path) -> None:
    path.write_bytes(raw)


def other(make: Callable[[Path], object], path: Path) -> None:
    """Something else is in the place of the file."""
    path.unlink()
    make(path)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10**12)


DEEP, PICKLE = b"[" * 200_000, pickle.dumps(Payload())
PLACES = (
    *("config.toml", "run.json", "environment.json", "tokenizer.json", "corpus.json", "ngrams.json", "metrics.jsonl"),
    *(f"{STEP}/{name}" for name in (*FILES, MANIFEST)),
)
ANYWHERE: dict[str, Harm] = {
    "nothing": partial(written, b""),
    "deep": partial(written, DEEP),
    "a deep table": partial(written, b'{"a":' * 100_000),
    "a list": partial(written, b"[]"),
    "5,000 digits": partial(written, b'{"format": ' + b"9" * 5000 + b"}\n"),
    "a pickle": partial(written, PICKLE),
    "64 MB of line ends": partial(written, b"\n" * (64 << 20)),
    "a terabyte": sparse,
    "a pipe": partial(other, os.mkfifo),
    "a link to a device": partial(other, lambda path: path.symlink_to("/dev/zero")),
    "a link to a file": partial(other, lambda path: path.symlink_to("/etc/hostname")),
}
STATES = (DEEP, PICKLE, b'{"step": "../../x"}', b'{"step": ' + b"9" * 5000 + b"}", b'{"step": -1}')
HISTORIES = ("[]", '{"metrics": [7]}', '{"metrics": {"bytes": 1e999, "lines": 1, "sha256": ""}}')
FRAMES = ({"event": "frame"}, {"event": "frame", "step": "x", "sha256": ""})
TOKENIZERS = (
    '{"name": "../../x"}',
    '{"name": "char", "tokens": ["<PAD>", "a", "a"]}',
    '{"name": "char", "tokens": ["<PAD>", 7]}',
    '{"name": "char", "tokens": ["<PAD>", "\\ud800"]}',
    '{"name": "bpe", "merges": [[999999, 999999]]}',
    json.dumps({"name": "bpe", "merges": [[255 + n, 255 + n] for n in range(60)]}),
)
CONFIGS = (
    ("d_model = 6", "d_model = 6000000000"),
    ("num_layers = 1", "num_layers = 1000000000"),
    ("context_length = 11", "context_length = 100000000000"),
    ('norm = "pre"', 'norm = "\\u001b[2J"'),
    ("learning_rate = 0.02", "learning_rate = 0.03"),
)


def harms() -> dict[str, Harm]:
    """What is done to the run, by name."""
    weights = {
        "a pickle": PICKLE,
        "a bomb": zipped(),
        "a description of 2^64 bytes": b"\xff" * 8 + b"{}",
        "a description of 100 MB": described({"a": "x" * (10**6)}, length=10**8),
        "100,000 tensors": described({f"t{n}": tensor([1], 4 * n) for n in range(100_000)}, b"\0" * 400_000),
        "deep": len(DEEP).to_bytes(8, "little") + DEEP,
        "a terabyte": described({"head.weight": tensor([2**20, 2**18])}, b"\0" * 4),
        "shape that overflows": described({"head.weight": tensor([2**40, 2**40])}, b"\0" * 4),
        "overlapping": described({"a": tensor([1]), "b": tensor([1])}, b"\0" * 4),
        "whole numbers": described({"a": tensor([1], dtype="I32")}, b"\0" * 4),
        "a name that steers terminals": described({"\x1b[2J": tensor([1])}, b"\0" * 4),
    }
    return {
        **{f"{name}: {how}": lambda run, n=name, h=how: ANYWHERE[h](run / n) for name in PLACES for how in ANYWHERE},
        **{f"weights: {how}": partial(sealed, model_safetensors=raw) for how, raw in weights.items()},
        **{f"state: {raw[:30]}": partial(sealed, state_json=raw) for raw in STATES},
        **{f"history: {raw}": partial(sealed, history_json=raw.encode()) for raw in HISTORIES},
        **{f"tokenizer: {raw}": lambda run, raw=raw: (run / "tokenizer.json").write_text(raw) for raw in TOKENIZERS},
        **{
            f"config: {new}": lambda run, old=old, new=new: (run / "config.toml").write_text(
                (run / "config.toml").read_text().replace(old, new)
            )
            for old, new in CONFIGS
        },
        **{f"log: {one}": lambda run, one=one: RunFolder(run).reseal(one) for one in FRAMES},
        "weights: NaN": not_finite,
        "run: another": lambda run: (run / "run.json").write_bytes(sealed_json({"run": "0" * 64})),
        f"{MANIFEST}: a path": lambda run: (run / STEP / MANIFEST).write_bytes(
            b'{"format": 1, "files": {"/etc/passwd": {}}, "sha256": ""}'
        ),
    }


@pytest.fixture(scope="module")
def alone(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run one step before its end with one checkpoint only: nothing to fall back to."""

    path = train(config, tmp_path_factory.mktemp("hostile") / "run", callback=at(interrupt, "step", STEPS - 1)).path
    for one in (path / "steps").iterdir():
        if one.name != Path(STEP).name:
            shutil.rmtree(one)
    return path


def meaning(loaded: LoadedRun) -> str:
    """Everything a loaded run computes with."""
    weights = {name: tensor.numpy().tobytes() for name, tensor in loaded.model.state_dict().items()}
    return sha256(f"{weights}{loaded.tokenizer.plain()}{comparable(loaded.sealed.config)}".encode())


def _load(run: Path, say: Callable[[str], None]) -> str:
    return meaning(load_run(run, "last", warn=say))


def _generate(run: Path, say: Callable[[str], None]) -> str:
    return Run(run, "last").generate("a", max_tokens=8, seed=3)


def _resume(run: Path, say: Callable[[str], None]) -> str:
    folder = resume(run, callback=lambda event: say(event["text"]) if event["event"] == "note" else None)
    return sha256(f"{last_bytes(folder)}".encode())


def _doctor(run: Path, say: Callable[[str], None]) -> str:
    findings = examine_run(run).findings
    assert all(is_one_line(finding.found) for finding in findings)
    wrong = [finding.what for finding in findings if finding.mark == "wrong"]
    if wrong:
        raise UsageError(f"doctor: {wrong[0]}")
    return "healthy"


def _report(run: Path, say: Callable[[str], None]) -> str:
    page = write_run_report(run).read_text(encoding="utf-8")
    shown, _, _ = page.partition("The whole configuration")  # which has the free keys and the place of the text too
    return sha256(shown.replace(str(run), "RUN").encode())


DOORS: dict[str, Callable[[Path, Callable[[str], None]], str]] = {
    "load": _load,
    "generate": _generate,
    "resume": _resume,
    "doctor": _doctor,
    "report": _report,
}


def through(door: str, run: Path) -> tuple[str | None, list[str]]:
    """What a door answers, None where it refuses, and what is said."""
    heard, said = io.StringIO(), list[str]()
    try:
        with contextlib.redirect_stderr(heard):
            answer = DOORS[door](run, said.append)
    except VitralError as error:
        return None, [str(error)]
    return answer, [*said, *heard.getvalue().splitlines()]


@trials(13, 12, 2000)
def test_refused_or_answered_rightly(
    trials: int, alone: Path, draw: random.Random, tmp_path: Path, tally: Tally
) -> None:
    """Refused in one line; or the right answer, with a line where the damage is noticed."""
    run, report = tmp_path / "run", tmp_path / "report"
    tree = Tree(Path(shutil.copytree(alone, run)))
    answers = dict[str, str | None]()
    for door in DOORS:  # afterwards all modules are imported
        answers[door], said = through(door, run)
        assert said == []
        tree.restore()
    harm = harms()
    every = [(name, door) for name in harm for door in DOORS]
    drawn = draw.sample(every, min(trials, len(every)))
    for name, door in drawn:
        harm[name](run)
        code = ended(forked(lambda door=door: _judge(run, door, report)))
        answer, said = json.loads(report.read_text(encoding="utf-8"))
        report.unlink()
        assert code == 0, (name, door, said)
        assert all(map(is_one_line, said)), (name, door, said)
        assert answer in (None, answers[door]), (name, door, said)
        assert len(said) <= 1, (name, door, said)
        assert said or door != "doctor", name
        tree.restore()
    assert not Path("/tmp/vitral-was-here").exists()
    tally("hostile files at the doors of a run: refused, or answered rightly", len(drawn))


def _judge(run: Path, door: str, report: Path) -> None:
    """Pass through a door in this process and leave it: 0 if nothing else happened, with what was said."""
    code, answer, said, seen = 0, None, list[str](), list[str]()
    watching = True

    def watch(event: str, given: tuple[Any, ...]) -> None:
        forbidden = event.startswith(FORBIDDEN) and event != "socket.gethostname"  # for the holder of the lock
        elsewhere = event == "open" and isinstance(given[0], str) and not _harmless(given[0], run, door)
        writes = event in ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "shutil.rmtree")
        if watching and (forbidden or elsewhere or (writes and door not in ("resume", "report"))):
            seen.append(f"{event} {given!r:.80}")

    sys.addaudithook(watch)
    limit = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])) + 1 + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        answer, said = through(door, run)
    except BaseException as error:  # whatever else: the parent says what it was
        code, said = 8, [f"{type(error).__name__}: {error}"]
    watching = False
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if grown > MEGABYTES:
        code, said = 7, [f"{grown:.0f} MB"]
    if seen:
        code, said = 6, seen
    report.write_text(json.dumps([answer, said]), encoding="utf-8")
    os._exit(code)


def _harmless(path: str, run: Path, door: str) -> bool:
    """A file of the run (also relative to an open folder), of the system, or one of Python's own imported late."""
    own = path.startswith((str(run), "/proc/", "/sys/")) or (not os.path.isabs(path) and ".." not in path)
    text = door in ("resume", "doctor") and (path.endswith("words.txt") or "cache" in path)
    python = path.startswith((sys.prefix, sys.base_prefix)) or path.endswith((".py", ".pyc", ".so"))
    return own or text or python or "site-packages" in path


def test_the_loader_knows_no_pickle() -> None:
    """Nowhere in the package: no pickle, no torch.load but of tensors and plain data alone, no eval, no yaml.load."""
    package = Path(sys.modules["vitral"].__file__ or "").parent
    forbidden = r"import pickle|torch\.(load|save)\(| eval\(|yaml|trust_remote|allow_pickle"
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8").replace("safetensors.torch.", "safetensors.")
        text = re.sub(r"torch\.load\([^\n]*weights_only=True", "", text)
        assert not re.search(forbidden, text), path
