"""Train the runs of the zoo and write them small, with what they measure: make zoo.

    python -m docs.make_zoo [NAME …]

A recipe is src/vitral/zoo/NAME.toml. The training is in build/zoo/NAME, and is taken from there if its configuration is
still that of the recipe. In src/vitral/zoo its last checkpoint remains, with weights in float16 and no optimizer.
numbers.json has what these weights measure, not those of the training.
"""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomli_w
import torch
from torch import Tensor

from vitral import Run, load, train
from vitral.data.tasks import KeyValueRecall, RepeatedStrings, task_texts
from vitral.evaluation.measures import measured
from vitral.inspection.induction import induction_scores, periods_of
from vitral.inspection.recall import recall_by_distance
from vitral.runs import Checkpoint, RunConfig, RunFolder, enter, is_run
from vitral.runs.loading import warn_on_stderr
from vitral.runs.zoo import FOLDER, recipe, zoo_names
from vitral.training.run import complete

BUILD = Path("build/zoo")
KEPT = ("corpus.json", "tokenizer.json", "environment.json", "ngrams.json", "run.json")
NEW = {"seed": 1, "sequences": 512}
"""Sequences of a task that no training saw."""


def main(names: list[str]) -> None:
    """Make these runs, or all, and their numbers."""
    known = FOLDER / "numbers.json"
    found = json.loads(known.read_text()) if known.exists() else {}
    for name in names or zoo_names():
        small(trained(recipe(name)["run"], BUILD / name), FOLDER / name)
        found[name] = numbers(load(FOLDER / name))
        print(name, found[name])
        known.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


def trained(wanted: Mapping[str, Any], folder: Path) -> Path:
    """The folder of a finished training with this configuration."""
    if is_run(folder) and is_made_by(wanted, enter(folder, warn_on_stderr).config):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    with TemporaryDirectory() as beside:
        written = Path(beside) / f"{folder.name}.toml"
        written.write_text(tomli_w.dumps(wanted))
        train(written, folder)
    return folder


def is_made_by(wanted: Mapping[str, Any], config: RunConfig) -> bool:
    """Whether this is the configuration of a training by a recipe, on a processor."""
    return complete(RunConfig.parse(wanted, "recipe").with_training(device="cpu")).watched() == config


def small(source: Path, out: Path) -> None:
    """Write a finished run with its last checkpoint alone, its weights in float16, and no steps in its log.

    The last evaluation is that of these weights.
    """
    sealed = enter(source, warn_on_stderr)
    last = sealed.load("last", with_optimizer=False, warn=warn_on_stderr)
    halves = {name: weight.half() for name, weight in last.model.items()}
    state = {**last.state, "best_step": last.step}
    history = {key: value for key, value in last.history.items() if key != "metrics"}
    *events, final, end = [event for event in sealed.metrics() if event["event"] in ("evaluation", "end")]

    def seal(folder: RunFolder) -> None:
        for document in KEPT:
            shutil.copyfile(source / document, folder.path / document)
        for event in events:
            folder.append_metric(event)
        folder.save(Checkpoint(last.step, halves, {}, state, history), keep=1)

    shutil.rmtree(out, ignore_errors=True)
    made, run = RunFolder.create(out, sealed.written, {}, seal), load(out)
    splits = measured(run.model, run.dataset(), run.sealed.config.training.objective)["splits"]
    made.reseal(final | {f"{name}_loss": splits[name].loss for name in ("validation", "test")})
    made.reseal(end)


def numbers(run: Run) -> dict[str, Any]:
    """What a run measures, as plain data: bytes, parameters, and one of test loss with n-grams, or share of a task."""
    told: dict[str, Any] = {
        "bytes": sum(file.stat().st_size for file in run.folder.path.rglob("*") if file.is_file()),
        "parameters": run.parameters,
    }
    config = run.sealed.config
    if isinstance(config.corpus.task, RepeatedStrings):
        return told | _induction(run, config.corpus.task)
    if isinstance(config.corpus.task, KeyValueRecall):
        task = config.corpus.task.model_copy(update=NEW)
        return told | {"right": recall_by_distance(run.model, task, _rows(run, task))["accuracy"]}
    found = measured(run.model, run.dataset(), config.training.objective)
    if config.corpus.records is not None:
        return told | {"exact": found["splits"]["test"].plain()["exact_match"]["share"]}
    best = min(run.ngram_baselines().orders.values())
    told |= {"loss": round(found["splits"]["test"].loss, 4), "table": round(best, 4)}
    return told | ({"gaps": round(found["masked"]["test"].loss, 4)} if found["masked"] else {})


def _induction(run: Run, task: RepeatedStrings) -> dict[str, Any]:
    """The head of the highest prefix-matching score on new strings, and that score."""
    new = task.model_copy(update=NEW)
    rows = _rows(run, new)
    layers = induction_scores(run.model, rows, periods_of(rows, task.shortest, task.longest))["layers"]
    heads = {(b, h): head["prefix"] for b, block in enumerate(layers) for h, head in enumerate(block["heads"])}
    block, head = max(heads, key=lambda place: heads[place])
    return {"block": block, "head": head, "prefix": round(heads[block, head], 4)}


def _rows(run: Run, task: Any) -> Tensor:
    return torch.stack([torch.from_numpy(run.tokenizer.encode(text)).long() for text in task_texts(task)])


if __name__ == "__main__":
    main(sys.argv[1:])
