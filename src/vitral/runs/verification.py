"""What is wrong with a run: one judgement, by the seal of its newest intact checkpoint, for all that opens runs.

The newest intact checkpoint seals the run: its identity, the hashes of its JSON files, the whole configuration, and
the log. `enter` (for load, resume, evaluate, pages), the list and the doctor call `verify`. What would enter every
result is refused, the rest is one line each:

- weights, optimizer, state: a damaged checkpoint is skipped, and an earlier one is used;
- tokenizer.json, config.toml (but for `FREE` keys and the place of the text), run.json of another run: refused;
- corpus.json, ngrams.json, metrics.jsonl: refused by what reads them;
- environment.json, run.json: the seal has what a resume needs.

Pointers, samples and older checkpoints are only looked at `deep`, by the doctor. Other files are not looked at.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitral.core.config import differences
from vitral.core.errors import StorageError, UsageError, reason
from vitral.core.files import read, readable
from vitral.core.language import N_, Message
from vitral.runs.checkpoint import Checkpoint, contents, list_checkpoints, load_state, step_name
from vitral.runs.folder import CONFIG, MOST_DOCUMENT, RUN, RunFolder, log_seal, pointers
from vitral.runs.metrics_log import NAME as LOG


@dataclass(frozen=True)
class Finding:
    """One damage.

    Attributes:
        file: its path in the run.
        line: what is wrong, with the run's path.
        is_refused: whether it would enter every result.
    """

    file: str
    line: Message
    is_refused: bool = False


@dataclass
class Verified:
    """A run as its seal says it is.

    Attributes:
        folder: the run on disk.
        newest: the newest intact checkpoint without its tensors; None before the first.
        sealed: its state, or run.json before the first: the identity.
        findings: what does not agree.
    """

    folder: RunFolder
    newest: Checkpoint | None = None
    sealed: Mapping[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def find(self, file: str, line: Message, *, is_refused: bool = False) -> None:
        """Add a finding."""
        self.findings.append(Finding(file, line, is_refused))

    def require(self, warn: Callable[[str], object]) -> None:
        """Say every finding, unless one is refused.

        Raises:
            UsageError: the first one that would enter every result.
        """
        for one in self.findings:
            if one.is_refused:
                raise UsageError(one.line)
        for one in self.findings:
            warn(one.line)


def verify(path: Path, *, deep: bool = False) -> Verified:
    """Compare a run's files with its seal.

    Args:
        path: the run's folder.
        deep: whether to read all of every checkpoint, and what is for people, too.

    Raises:
        UsageError: it is not a run, or folders in it are links.
    """
    run = Verified(RunFolder.open(path))
    last: Message | None = None
    for folder in reversed(list_checkpoints(run.folder.steps)):
        try:
            found = load_state(folder)
            run.newest = run.newest or found
            if deep:
                contents(folder)
        except (UsageError, StorageError) as error:
            last = last or reason(error)
            line = reason(error) if run.newest else N_("{why}; using the one before").format(why=error)
            run.find(f"steps/{folder.name}", line)
        if run.newest and not deep:
            break
    if not run.newest and last:
        line = N_("{path}: no intact checkpoint ({complaint})")
        run.find("steps", line.format(path=path, complaint=last.removeprefix(f"{path}{os.sep}")), is_refused=True)
    elif _born(run):
        _documents(run)
        _configuration(run)
        if deep:
            _for_people(run)
    return run


def _born(run: Verified) -> bool:
    """Compare run.json; return whether there is an identity."""
    path = run.folder.path
    try:
        born = run.folder.born()
    except UsageError as error:
        if run.newest is None:
            line = N_("{path}: no checkpoint, and run.json is missing; it cannot be continued")
            run.find(RUN, line.format(path=path), is_refused=True)
            return False
        line = N_("{why}; the newest checkpoint contains the same; vitral doctor --repair {path} restores it")
        run.find(RUN, line.format(why=error, path=path))
        born = run.newest.state
    run.sealed = born if run.newest is None else run.newest.state
    if born.get("run") != run.sealed.get("run"):
        line = N_("{path}: its checkpoints are of another run than its run.json; they were put together by hand")
        run.find(RUN, line.format(path=path), is_refused=True)
    if run.newest is None and born.get("parent") is not None:
        line = N_(
            "{path}: no intact checkpoint, and it began with the weights of another run; start it again from there, "
            "with vitral train --init-from or vitral continue"
        )
        run.find("steps", line.format(path=path), is_refused=True)
    unknown = [key for key in ("documents", "config") if not isinstance(run.sealed.get(key), dict)]
    for key in unknown:
        run.find("steps", N_("{path}: its identity has no {key}").format(path=path, key=key), is_refused=True)
    return not unknown


def _documents(run: Verified) -> None:
    """Compare the sealed JSON files and the log."""
    hashes = dict(run.sealed["documents"])
    if run.newest is not None:
        hashes["environment.json"] = run.newest.history.get("environment")
    for name, hashed in hashes.items():
        try:
            run.folder.as_sealed(name, hashed)
        except UsageError as error:
            run.find(name, reason(error), is_refused=name == "tokenizer.json")
    try:
        if (seal := log_seal(run.newest)) is not None:
            run.folder.log.require(seal)
    except UsageError as error:
        run.find(LOG, reason(error))


def _configuration(run: Verified) -> None:
    """Compare config.toml, which people may edit."""
    where = run.folder.path / CONFIG
    try:
        written, sealed = run.folder.config, run.sealed["config"]
        if written == sealed:
            return
        from vitral.runs.config import RunConfig, comparable  # loads PyTorch, which takes seconds

        one, other = (comparable(RunConfig.parse(each, str(where))) for each in (sealed, written))
        found = [f"{key}: {_shown(before)} → {_shown(now)}" for key, before, now in differences(one, other)]
        if not found:
            return
        why = N_("{where}: changed since the run began ({changed})").format(where=where, changed="; ".join(found))
    except UsageError as error:
        why = reason(error)
    line = N_("{why}; vitral doctor --repair {path} restores it").format(why=why, path=run.folder.path)
    run.find(CONFIG, line, is_refused=True)


def _shown(value: Any) -> str:
    return "–" if value is None else str(value)[:60]


def _for_people(run: Verified) -> None:
    """Compare pointers and samples, which no result reads."""
    expected = dict[str, tuple[str, Message]]()
    if run.newest is not None:
        said = N_("{where}: is not {sealed}, the sealed one, which is used")
        expected = {name: (f"{step}\n", said) for name, step in pointers(run.newest).items()}
    said = N_("{where}: differs from the log, which is right")
    with suppress(UsageError):  # found already
        for event in run.folder.log.events("sample", log_seal(run.newest)):
            expected[f"samples/{step_name(event['step'])}.txt"] = (f"{event['text']}\n", said)
    for name, (text, sentence) in expected.items():
        path = run.folder.path / name
        if not os.path.lexists(path):
            continue
        try:
            with readable(path):
                if read(path, MOST_DOCUMENT) != text.encode():
                    run.find(name, sentence.format(where=path, sealed=text.strip()))
        except UsageError as error:
            run.find(name, reason(error))
