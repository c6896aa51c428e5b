"""The repair of a damaged run: what its newest intact checkpoint seals is restored."""

import os
from contextlib import suppress
from pathlib import Path

from vitral.core.errors import StorageError, UsageError
from vitral.core.files import insist, read, replace_durably, storage
from vitral.core.language import N_
from vitral.runs import RunConfig, RunFolder, verify
from vitral.runs.checkpoint import FORMAT, MOST_BYTES, list_checkpoints, load_state
from vitral.runs.folder import CONFIG, RUN
from vitral.runs.lock import only_writer
from vitral.runs.metrics_log import NAME as LOG
from vitral.runs.sealed import identity_in, with_free_keys

POINTERS = {"best", "last"}


def repair_run(path: Path) -> tuple[str, ...]:
    """Restore what the newest intact checkpoint seals: config.toml, run.json, log, pointers.

    The returned lines, one for each, are messages.

    What was there is kept beside it, under a name with "damaged".

    Raises:
        UsageError: not a run, or nothing seals it.
        StorageError: a file cannot be written.
    """
    RunFolder.open(path)
    done: list[str] = []
    with only_writer(path):
        RunFolder.open(path).sweep()
        found = verify(path, deep=True)
        folder, damaged = found.folder, {one.file for one in found.findings}
        for one in found.findings:
            if one.is_refused and one.file != CONFIG:
                raise UsageError(one.line)
        identity = identity_in(found.sealed, str(path))
        if CONFIG in damaged:
            config = identity.config
            with suppress(UsageError):
                config = with_free_keys(config, RunConfig.parse(folder.config))
            done.append(_set_aside(folder, CONFIG))
            folder.write_config(config.plain())
        if RUN in damaged:
            done.append(_set_aside(folder, RUN))
            folder.write_document("run", {"format": FORMAT, **identity.plain()})
        if LOG in damaged:
            done.append(_repair_log(folder))
        wrong = sorted(POINTERS & damaged)
        done += [_set_aside(folder, pointer) for pointer in wrong]
        if wrong and found.newest is not None:
            folder.point(found.newest)
    return tuple(done)


def _set_aside(folder: RunFolder, name: str) -> str:
    """Keep a damaged file under another name."""
    if not os.path.lexists(folder.path / name):
        return N_("{file} was missing and has been restored").format(file=name)
    number = 1
    while os.path.lexists(folder.path / (kept := f"{Path(name).stem}.damaged-{number}{Path(name).suffix}")):
        number += 1
    with storage(folder.path / name):
        insist(os.rename, folder.path / name, folder.path / kept)
    return N_("{file} has been restored; the damaged one is {kept}").format(file=name, kept=kept)


def _repair_log(folder: RunFolder) -> str:
    """Cut the log after the last line that some checkpoint still seals, say so in the log, and seal it again."""
    log, intact, raw = folder.log.path, 0, b""
    for one in reversed(list_checkpoints(folder.steps)):
        with suppress(UsageError, StorageError, KeyError):
            folder.log.require(seal := load_state(one).history["metrics"])
            intact = int(seal["bytes"])
            break
    if log.is_file() and not log.is_symlink():
        raw = read(log, MOST_BYTES)
    done = _set_aside(folder, LOG)
    replace_durably(log, raw[:intact])
    folder.append_metric({"event": "repaired", "text": N_("the log was damaged and has been cut here")})
    folder.reseal("metrics")
    return done
