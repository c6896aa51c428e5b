"""Row `board`: the lowest loss on tiny Shakespeare after some minutes; its rules are in docs/internals/board.md."""

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import tomli_w

from benchmarks.machine import commit
from benchmarks.options import LeftOut, Options
from benchmarks.peers import NANOGPT
from benchmarks.peers.nanogpt_training import characters_of, require_checkout
from benchmarks.processes import cold
from benchmarks.results import LOSS, Measurement, Section
from benchmarks.rows.nanogpt_minute import LATE, QUICK_SECONDS, Round, train_in, train_nanogpt
from vitral.core.errors import UsageError
from vitral.core.machine import processor
from vitral.data import CorpusConfig, load_corpus, prepare
from vitral.studies.estimator import Difference, differences, enough

NAMES = ("board",)
MINUTES, THREADS = (1, 3, 15), 2
FILE = "board.json"
TEXT_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
PLAN = "vitral train TEXT"
"""The name of Vitral's own plan."""
LEVEL = 0.01
Entries = Mapping[str, Mapping[str, Any] | None]
"""Tables of a run's configuration by name; None: Vitral's own plan."""
Record = Mapping[str, Any]
"""Minutes, name, config, losses, seconds, p, processor, date, commit."""


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Train the holder of the record, Vitral's plan, every configuration and nanoGPT in turns, seed by seed.

    Raises:
        LeftOut: there is no text, or a file or a training cannot be used.
    """
    text, sha256 = _text(options)
    seconds = QUICK_SECONDS if options.quick else 60 * options.minutes
    kept: list[Record] = [] if options.records is None else read(options.records)
    held = [one for one in kept if one["minutes"] == options.minutes]
    entries = contenders(held, options.configs)
    rounds = _trained(text, entries, seconds, replace(options, threads=THREADS))
    losses = {name: [one.loss for one in each] for name, each in rounds.items()}
    took = {name: fmean(one.seconds for one in each) for name, each in rounds.items()}
    compared = judged(losses)
    best = new_record({name: losses[name] for name in entries if took[name] <= LATE * seconds}, compared, held)
    file = options.records if enough(options.seeds, 1) and sha256 == TEXT_SHA256 and not options.quick else None
    if best is not None and file is not None:
        record = {"minutes": options.minutes, "name": best, "config": entries[best], "losses": losses[best]}
        record |= {"seconds": took[best], "p": compared[best].p if best in compared else None, "processor": processor()}
        held.append({**record, "date": date.today().isoformat(), "commit": commit()})
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([*kept, held[-1]], indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    notes = (
        "test loss: nats per character of the last tenth, mean of the seeds; p: against the first row",
        *([] if options.nanogpt else [f"{NANOGPT} is left out: --nanogpt FOLDER names a checkout of it"]),
        *([] if sha256 == TEXT_SHA256 else ["another text than tiny Shakespeare: nothing is a record"]),
        *rendered(held),
    )
    return [
        Section(
            "board",
            f"{seconds / 60:g} min of wall time on tiny Shakespeare, cold processes of {THREADS} threads",
            tuple(
                Measurement(
                    name,
                    tuple(one.seconds for one in each),
                    {LOSS: round(fmean(losses[name]), 4), "steps": each[-1].steps}
                    | ({"p": round(compared[name].p, 4)} if name in compared else {}),
                )
                for name, each in rounds.items()
            ),
            notes=notes,
            is_race=False,
        )
    ]


def _text(options: Options) -> tuple[str, str]:
    """The text that is given and its SHA-256."""
    if not options.texts:
        raise LeftOut("it needs the text of tiny Shakespeare: --text FILE")
    text = os.path.abspath(options.texts[0]) if os.path.exists(options.texts[0]) else options.texts[0]
    try:
        return text, load_corpus(CorpusConfig(source=text)).sha256
    except UsageError as error:
        raise LeftOut(str(error)) from None


def read(path: Path) -> list[Record]:
    """The records of a file, oldest first; none where there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def contenders(held: Sequence[Record], files: Sequence[Path]) -> Entries:
    """Who is trained: the holder of the last record first, then Vitral's plan and the configurations by their files.

    Raises:
        LeftOut: a file cannot be read, or has the holder's name and another content.
    """
    entries = {one["name"]: one["config"] for one in held[-1:]}
    entries.setdefault(PLAN, None)
    for path in files:
        try:
            config = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise LeftOut(f"{path}: {error}") from None
        if entries.setdefault(path.stem, config) != config:
            raise LeftOut(f"{path}: another contender has the name {path.stem}; rename the file")
    return entries


def _trained(text: str, entries: Entries, seconds: float, options: Options) -> dict[str, list[Round]]:
    rounds: dict[str, list[Round]] = {name: [] for name in entries}
    for seed in range(1, 1 + (1 if options.quick else options.seeds)):
        for name, config in entries.items():
            with cold(options) as (scratch, env):
                start, chosen = text, ["--set", "corpus.split=nanogpt"]
                if config is not None:
                    start = str(scratch / "run.toml")
                    Path(start).write_text(tomli_w.dumps(config), encoding="utf-8")
                    chosen += ["--corpus", text]
                rounds[name].append(train_in(seconds, seed, start, chosen, scratch / "run", env))
        if options.nanogpt is not None:
            with cold(options) as (scratch, env):
                characters = characters_of(prepare(CorpusConfig(source=text, split="nanogpt")))
                checkout = require_checkout(options.nanogpt)
                trained = train_nanogpt(characters, seconds, checkout, scratch, env, options)
                rounds.setdefault(NANOGPT, []).append(trained)
    return rounds


def judged(losses: Mapping[str, Sequence[float]]) -> dict[str, Difference]:
    """Everybody against the first, by the estimator of studies; empty where there are too few seeds, or no spread."""
    values, others = np.log(np.array(list(losses.values()))), list(losses)[1:]
    if not others or not enough(values.shape[1], len(others)):
        return {}
    try:
        contrasts = [(row, 0) for row in range(1, len(values))]
        return dict(zip(others, differences(values, contrasts), strict=True))
    except ZeroDivisionError:
        return {}


def new_record(
    losses: Mapping[str, Sequence[float]], differences: Mapping[str, Difference], held: Sequence[Record]
) -> str | None:
    """The name with the lowest mean loss of those that are surely below the holder; without a holder, Vitral's plan."""
    if not held:
        return PLAN if PLAN in losses else None
    sure = [
        name
        for name in losses
        if name in differences and differences[name].log_ratio < 0 and differences[name].p < LEVEL
    ]
    return min(sure, key=lambda name: fmean(losses[name]), default=None)


def rendered(records: Sequence[Record]) -> list[str]:
    """A line for each record, the newest first."""
    return [
        f"record of {one['date']}: {fmean(one['losses']):.4f} ({len(one['losses'])} seeds) by {one['name']}, "
        f"{one['processor']}, commit {one['commit']}" + ("" if one["p"] is None else f", p {one['p']:.4f}")
        for one in reversed(records)
    ]
