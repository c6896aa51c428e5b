"""`python -m benchmarks.tricks FOLDER`: which tricks of the speedrunners lower the loss here, at equal processor time?

FOLDER holds `tinyshakespeare.txt` and `machado.txt`; the third text is the standard library's own source. A trick is a
function that changes a `Trainer` before its first step: its settings, activations, optimizer, batches or loss; the
steps are Vitral's own. The processor time of a step is measured once, each trick in turns with the base; a trick then
gets as many steps as the base does in its time, so that nothing after that depends on the machine's load. Learning
rates are tuned for every trick on the validation part, by seeds of their own; the test part is read by the last runs
alone. A line for each finished run is kept in `runs.jsonl`, so that a study that was stopped goes on.
"""

import argparse
import hashlib
import json
import os
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.machine import describe_machine
from vitral.core.config import merge
from vitral.core.errors import TrainingStopped
from vitral.data import CorpusConfig, Dataset, prepare
from vitral.data.batches import Batches, thinned
from vitral.evaluation import evaluate_split
from vitral.model import Transformer
from vitral.model.hooked import Hook, HookedTransformer
from vitral.model.transformer import mean_cross_entropy
from vitral.runs import RunFolder
from vitral.runs.config import RunConfig
from vitral.studies.design import TUNING_SEEDS
from vitral.studies.results import Trial, Tuned, trial_error
from vitral.studies.tuning import chosen
from vitral.training import silent
from vitral.training.loop import one_step
from vitral.training.optimizers import Muon
from vitral.training.trainer import Trainer

Plain = dict[str, Any]
Settings = Mapping[str, Any]
BASE = "base"
FACTORS = (1.0, 1.4, 1.96)
"""Of both learning rates, tried for every arm; where the first or the last is best, one beyond at their ratio."""
TUNED_ON = "tinyshakespeare"
TIMED_STEPS, ROUNDS = 24, 9
MOST_VALIDATION, MOST_TEST = 60_000, 120_000
"""Tokens of a part that are scored, evenly spaced."""
PYTHON_CHARACTERS = 1_200_000

# ---------------------------------------------------------------- the tricks


def extra(model: Transformer, name: str, module: nn.Module, *, zero: bool = True) -> Any:
    """Parameters that a trick adds to the model, zero at first; AdamW trains them as it does embeddings."""
    if zero:
        for parameter in module.parameters():
            nn.init.zeros_(parameter)
    model.add_module(f"extra_{name}", module)
    return module


def seen_tokens(model: Transformer) -> dict[str, Tensor]:
    """Holds under "tokens" what the model reads in the present pass."""
    seen: dict[str, Tensor] = {}
    model.token_embedding.register_forward_pre_hook(lambda _module, given: seen.update(tokens=given[0]))
    return seen


def value_embeddings(model: Transformer) -> dict[str, Hook]:
    """A table for each layer whose rows are added to the values."""
    seen, config, hooks = seen_tokens(model), model.config, dict[str, Hook]()
    for layer in range(config.num_layers):
        table = extra(model, f"values{layer}", nn.Embedding(model.vocab_size, config.kv_heads * config.d_head))

        def add(v: Tensor, table: nn.Embedding = table) -> Tensor:
            rows = table(seen["tokens"]).unflatten(-1, (config.kv_heads, config.d_head)).transpose(1, 2)
            return v + rows.to(v.dtype)

        hooks[f"blocks.{layer}.attn.v"] = add
    return hooks


def bigram(model: Transformer) -> dict[str, Hook]:
    """An exact table of pairs of tokens, a row of which is added to the logits."""
    seen, table = seen_tokens(model), extra(model, "pairs", nn.Embedding(model.vocab_size, model.vocab_size))
    return {"logits": lambda logits: logits + table(seen["tokens"])}


def qk_norm(model: Transformer) -> dict[str, Hook]:
    """Queries and keys of mean square one, times learned gains."""
    width, hooks = model.config.d_head, dict[str, Hook]()
    for layer in range(model.config.num_layers):
        for which in "qk":
            gain = extra(model, f"gain_{which}{layer}", nn.RMSNorm(width), zero=False).weight

            def normalise(x: Tensor, gain: Tensor = gain) -> Tensor:
                return functional.rms_norm(x, (width,)) * gain.to(x.dtype)

            hooks[f"blocks.{layer}.attn.{which}"] = normalise
    return hooks


def skips(model: Transformer) -> dict[str, Hook]:
    """The embedding is added again, channel by channel, before every block but the first and after the last."""
    kept, layers, hooks = dict[str, Tensor](), model.config.num_layers, dict[str, Hook]()
    hooks["embed"] = lambda x: kept.update(embed=x)
    for layer in range(1, layers + 1):
        weight = extra(model, f"skip{layer}", nn.RMSNorm(model.config.d_model)).weight

        def add(x: Tensor, weight: Tensor = weight) -> Tensor:
            return x + (weight * kept["embed"]).to(x.dtype)

        hooks[f"blocks.{layer}.resid_pre" if layer < layers else f"blocks.{layers - 1}.resid_post"] = add
    return hooks


GATE_INPUTS = 12


def gates(model: Transformer) -> dict[str, Hook]:
    """Each head's output times twice the sigmoid of a linear map of the first channels that the attention reads."""
    kept, hooks = dict[int, Tensor](), dict[str, Hook]()
    for layer in range(model.config.num_layers):
        gate = extra(model, f"gate{layer}", nn.Linear(GATE_INPUTS, model.config.num_heads))

        def keep(x: Tensor, layer: int = layer) -> None:
            kept[layer] = x

        def close(z: Tensor, layer: int = layer, gate: nn.Linear = gate) -> Tensor:
            return z * (2 * torch.sigmoid(gate(kept[layer][..., :GATE_INPUTS]))).mT[..., None].to(z.dtype)

        hooks |= {f"blocks.{layer}.attn_norm": keep, f"blocks.{layer}.attn.z": close}
    return hooks


def second_head(model: Transformer) -> dict[str, Hook]:
    """A head for the token after the next one; `multi_token` gives it a loss."""
    head: Any = extra(model, "second", nn.Linear(model.config.d_model, model.vocab_size, bias=False))

    def keep(x: Tensor) -> None:
        head.read = x

    return {"final_norm": keep}


def multi_token(trainer: Trainer) -> None:
    """The loss of the token after the next one is added, times a half at first and nothing after two thirds."""
    plain, head = trainer.loss, cast(Any, trainer.model).extra_second

    def loss(inputs: Tensor, targets: Tensor, bidirectional: bool = False) -> Tensor:
        of_next = plain(inputs, targets, bidirectional)
        weight = 0.5 * (1 - 1.5 * trainer.state.step / trainer.config.training.steps)
        if weight <= 0:
            return of_next
        return of_next + weight * mean_cross_entropy(head(head.read[:, :-1]), targets[:, 1:], 0)

    trainer.loss = loss


def averaged(first: float, horizon: float = 0.0) -> Callable[[Trainer], Callable[[], None]]:
    """Weights averaged from a share of the steps on: their mean, or exponentially over a share of the steps."""

    def alter(trainer: Trainer) -> Callable[[], None]:
        steps, step = trainer.config.training.steps, trainer.optimizer.step
        kept, weights = list[Tensor](), list(trainer.parameters.values())
        begin, least = round(first * steps), 1 / (horizon * steps) if horizon else 0.0

        def step_and_average() -> None:
            step()
            count = trainer.state.step - begin
            if count == 0:
                kept.extend(weight.detach().clone() for weight in weights)
            for mean, weight in zip(kept, weights, strict=count >= 0):
                mean.lerp_(weight.detach(), max(least, 1 / (count + 1)))

        def finish() -> None:
            with torch.no_grad():
                for weight, mean in zip(weights, kept, strict=True):
                    weight.copy_(mean)

        setattr(trainer.optimizer, "step", step_and_average)  # noqa: B010
        return finish

    return alter


def normuon(trainer: Trainer) -> None:
    """Rows of Muon's direction divided by the root of their mean square, averaged over steps (Li et al. 2025)."""
    muon = next(one for one in trainer.optimizer.members if isinstance(one, Muon))
    plain, squares = muon.apply, dict[nn.Parameter, Tensor]()

    def apply(parameters: Iterable[nn.Parameter], group: Mapping[str, Any]) -> None:
        before = [parameter.clone() for parameter in parameters]
        plain(list(parameters), group)
        for parameter, old in zip(parameters, before, strict=True):
            moved = (parameter - old) / group["lr"]
            mean = moved.square().mean(dim=1, keepdim=True)
            squares.setdefault(parameter, mean).lerp_(mean, 0.05)
            even = moved / (squares[parameter].sqrt() + 1e-8)
            parameter.copy_(old + group["lr"] * moved.norm() / even.norm() * even)

    setattr(muon, "apply", apply)  # noqa: B010


def growing_context(trainer: Trainer, short: int = 64) -> None:
    """Windows of 64 tokens in the first half of the steps, as many tokens in a step."""
    full, half = trainer.batches, trainer.config.training.steps // 2
    batch = full.batch_size * full.context_length // short
    brief = Batches(full.split, context_length=short, batch_size=batch, seed=full.seed)

    class Growing:
        def batch(self, step: int, micro: int = 0) -> tuple[Tensor, Tensor]:
            return (brief if step < half else full).batch(step, micro)

    cast(Any, trainer).batches = Growing()


@dataclass(frozen=True)
class Arm:
    """The base with one change.

    Attributes:
        title: as the table has it.
        settings: of the configuration.
        parts: add parameters to the model, and replace activations.
        alter: changes the trainer; may return what is to be done after the last step.
    """

    title: str
    settings: Settings | None = None
    parts: tuple[Callable[[Transformer], dict[str, Hook]], ...] = ()
    alter: Callable[[Trainer], Callable[[], None] | None] | None = None


ARMS = {
    BASE: Arm("the plan's recipe"),
    "ema": Arm("weights averaged exponentially over 5 % of the steps", alter=averaged(0.0, 0.05)),
    "tail-mean": Arm("mean of the weights of the last fifth", alter=averaged(0.8)),
    "value-embeddings": Arm("value embeddings", parts=(value_embeddings,)),
    "bigram": Arm("bigram table added to the logits", parts=(bigram,)),
    "qk-norm": Arm("normalised queries and keys", parts=(qk_norm,)),
    "larger-decay": Arm(
        "weight decay 0.5, the next larger model",
        {"training": {"optimizer": {"weight_decay": 0.5}}, "model": {"d_model": 128, "d_ff": 512}},
    ),
    "shuffled": Arm("fresh shuffle in each pass", {"training": {"windows": "shuffled"}}),
    "context": Arm("context 64 in the first half", alter=growing_context),
    "normuon": Arm("NorMuon's rows of equal size", alter=normuon),
    "skips": Arm("skips from the embedding", parts=(skips,)),
    "head-gates": Arm("a gate for each head", parts=(gates,)),
    "multi-token": Arm("loss of the token after the next too", parts=(second_head,), alter=multi_token),
}

# ---------------------------------------------------------------- the base, and the texts

RECIPE: Plain = {
    "model": {"context_length": 128, "d_model": 96, "num_layers": 2, "num_heads": 4, "d_ff": 256}
    | {"positions": "rotary", "initialisation": "wide"},
    "training": {
        "batch_size": 16,
        "optimizer": {"name": "muon", "learning_rate": 0.04, "momentum": 0.85}
        | {"rest": {"name": "adamw", "learning_rate": 0.02, "weight_decay": 0.0}},
        "schedule": {"name": "linear", "warmup_steps": 20},
        "device": "cpu",
        "dtype": "bfloat16",
    },
}
"""What `vitral train TEXT --minutes 0.5` plans on two cores."""


@dataclass(frozen=True)
class Stage:
    """A length of training.

    Attributes:
        steps: of the base.
        settings: other than `RECIPE`.
        texts: that are trained on.
        tuned: whether rates are tried; else they are the plan's.
        first: the first seed.
    """

    steps: int
    settings: Settings
    texts: tuple[str, ...]
    tuned: bool = True
    first: int = 1


LONGER: Plain = {
    "model": {"context_length": 256, "d_model": 128, "num_layers": 4, "d_ff": 512},
    "training": {"batch_size": 8},
}
"""What the plan of three minutes has other than that of half a minute."""
STAGES = {
    "brief": Stage(300, {}, ("tinyshakespeare", "machado", "python")),
    "confirm": Stage(600, {}, ("tinyshakespeare", "machado", "python"), tuned=False, first=11),
    "long": Stage(1_800, LONGER, ("tinyshakespeare",), tuned=False, first=11),
}


def configuration(stage: str, arm: str, steps: int, seed: int, factor: float = 1.0) -> RunConfig:
    """The configuration of a run."""
    settings = merge(RECIPE, STAGES[stage].settings, ARMS[arm].settings or {}, {"training": {"steps": steps}})
    optimizer = settings["training"]["optimizer"]
    for rates in (optimizer, optimizer["rest"]):
        rates["learning_rate"] *= factor
    return RunConfig.parse({**settings, "seed": seed})


@cache
def dataset_of(text: str, folder: Path, out: Path) -> Dataset:
    """A text; of tiny Shakespeare nanoGPT's split, whose held-out tenth is halved into validation and test."""
    if text == "python":
        path = out / "python.txt"
        if not path.exists():
            modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
            path.write_text(
                "\n\n".join(each.read_text("utf-8", "ignore") for each in modules)[:PYTHON_CHARACTERS], "utf-8"
            )
        return prepare(CorpusConfig(source=str(path)))
    if text != "tinyshakespeare":
        return prepare(CorpusConfig(source=str(folder / f"{text}.txt")))
    dataset = prepare(CorpusConfig(source=str(folder / f"{text}.txt"), split="nanogpt"))
    held = dataset.splits["test"]
    begin, end = held.segments[0]
    middle = (begin + end) // 2
    for name, piece in (("validation", (begin, middle)), ("test", (middle, end))):
        dataset.splits[name] = replace(held, segments=np.array([piece]))
    return dataset


# ---------------------------------------------------------------- runs


def prepared(config: RunConfig, dataset: Dataset, arm: Arm) -> tuple[Trainer, Callable[[], None] | None]:
    """The trainer of an arm before its first step, and what is to be done after the last one."""
    model, hooks = Transformer(config.model, dataset.tokenizer.vocab_size, seed=config.seed), dict[str, Hook]()
    for part in arm.parts:
        hooks |= part(model)
    model = HookedTransformer.of(model, hooks) if hooks else model
    trainer = Trainer(config, dataset, model, RunFolder(Path(tempfile.gettempdir())), silent)
    return trainer, arm.alter(trainer) if arm.alter else None


def step_through(trainer: Trainer, finish: Callable[[], None] | None) -> float:
    """All steps of a run; processor seconds."""
    began = time.process_time()
    while trainer.state.step < trainer.config.training.steps:
        one_step(trainer)
        trainer.state.step += 1
    if finish is not None:
        finish()
    return time.process_time() - began


def work(task: Plain, folder: Path, out: Path) -> Plain:
    """Do one task of the study: time an arm beside the base, or train and measure."""
    torch.set_num_threads(1)
    dataset, arm = dataset_of(task["text"], folder, out), ARMS[task["arm"]]
    if task["kind"] == "ratio":
        pairs = [
            [
                step_through(*prepared(configuration(task["stage"], name, TIMED_STEPS, 1), dataset, ARMS[name]))
                for name in (BASE, task["arm"])
            ]
            for _round in range(ROUNDS + 1)
        ]
        return {"ratio": median(one / base for base, one in pairs[1:]), "seconds": pairs[1:]}
    config = configuration(task["stage"], task["arm"], task["steps"], task["seed"], task["factor"])
    trainer, finish = prepared(config, dataset, arm)
    try:
        result: Plain = {"seconds": round(step_through(trainer, finish), 2)}
    except TrainingStopped as stopped:
        return {"stopped": str(stopped)}
    parts = {"validation": MOST_VALIDATION} | ({"test": MOST_TEST} if task["kind"] == "final" else {})
    for name, most in parts.items():
        few = thinned(dataset.splits[name], most)
        result[name] = evaluate_split(trainer.model, few, dataset.tokenizer).loss
    return result | {"parameters": sum(each.numel() for each in trainer.parameters.values())}


class Study:
    """A stage of the study: its tasks, what is finished of them, and what follows from that."""

    def __init__(self, stage: str, arms: list[str], seeds: int, folder: Path, out: Path, workers: int) -> None:
        """Read what is there of an earlier session."""
        self.stage, self.name, self.arms = STAGES[stage], stage, arms
        self.seeds = [*range(self.stage.first, self.stage.first + seeds)]
        self.folder, self.out, self.workers, self.path = folder, out, workers, out / "runs.jsonl"
        lines = self.path.read_text("utf-8").splitlines() if self.path.exists() else []
        self.results: dict[str, Plain] = {one["key"]: one for one in map(json.loads, lines)}

    def task(self, kind: str, arm: str, text: str = TUNED_ON, seed: int = 1, factor: float = 1.0) -> Plain:
        """A task by all that its result depends on."""
        steps = TIMED_STEPS if kind == "ratio" else self.steps(arm)
        digest = hashlib.sha256(json.dumps(configuration(self.name, arm, steps, seed, factor).plain()).encode())
        about: Plain = {"kind": kind, "stage": self.name, "arm": arm, "text": text, "steps": steps, "seed": seed}
        about |= {"factor": factor, "config": digest.hexdigest()[:12]}
        return about | {"key": json.dumps(about, sort_keys=True)}

    def do(self, tasks: Iterable[Plain]) -> list[Plain]:
        """The results of tasks, in order; those that are not there are worked on now."""
        tasks = list(tasks)
        missing = [task for task in tasks if task["key"] not in self.results]
        print(f"{self.name}: {len(missing)} of {len(tasks)} tasks to do", flush=True)
        with ProcessPoolExecutor(self.workers) as pool, self.path.open("a", encoding="utf-8") as lines:
            begun = {pool.submit(work, task, self.folder, self.out): task for task in missing}
            for done in as_completed(begun):
                task = begun[done]
                self.results[task["key"]] = task | done.result()
                print(json.dumps(self.results[task["key"]]), file=lines, flush=True)
        return [self.results[task["key"]] for task in tasks]

    def ratio(self, arm: str) -> float:
        """The processor time of an arm's step, in steps of the base."""
        return 1.0 if arm == BASE else self.results[self.task("ratio", arm)["key"]]["ratio"]

    def steps(self, arm: str) -> int:
        """As many as take the base's time."""
        return round(self.stage.steps / self.ratio(arm))

    def tune(self) -> dict[str, Tuned]:
        """The chosen factor of every arm."""
        if not self.stage.tuned:
            return {arm: Tuned(arm, (), 1.0, False) for arm in self.arms}
        factors = {arm: list(FACTORS) for arm in self.arms}
        choices = self._chosen(factors)
        for arm, tuned in choices.items():
            if tuned.at_edge:
                factors[arm].append(round(tuned.chosen * FACTORS[1] ** (1 if tuned.chosen > 1 else -1), 3))
        return self._chosen(factors)

    def _chosen(self, factors: Mapping[str, list[float]]) -> dict[str, Tuned]:
        asked = [(arm, factor, seed) for arm in factors for factor in sorted(factors[arm]) for seed in TUNING_SEEDS]
        done = self.do(self.task("tune", arm, seed=seed, factor=factor) for arm, factor, seed in asked)
        losses = {one: trial.get("validation") for one, trial in zip(asked, done, strict=True)}
        trials = {
            arm: [
                Trial(factor, {"factor": factor}, tuple(losses[arm, factor, seed] for seed in TUNING_SEEDS))
                for factor in sorted(tried)
            ]
            for arm, tried in factors.items()
        }
        error = trial_error(chain(*trials.values()))
        base = chosen(BASE, trials[BASE], None, error)
        return {
            arm: chosen(arm, each, {"factor": base.chosen} if arm != BASE else None, error)
            for arm, each in trials.items()
        }

    def run(self) -> Plain:
        """Everything of the stage, as plain data."""
        self.do(self.task("ratio", arm) for arm in self.arms if arm != BASE)
        tuned = self.tune()
        asked = [(text, seed, arm) for text in self.stage.texts for seed in self.seeds for arm in self.arms]
        done = self.do(self.task("final", arm, text, seed, tuned[arm].chosen) for text, seed, arm in asked)
        runs = [
            {key: one.get(key) for key in ("text", "arm", "seed", "steps", "validation", "test", "seconds", "stopped")}
            for one in done
        ]
        size = {one["arm"]: one.get("parameters") for one in done if one["text"] == TUNED_ON}
        datasets = {text: dataset_of(text, self.folder, self.out) for text in self.stage.texts}
        return {
            "stage": self.name,
            "steps": self.stage.steps,
            "seeds": len(self.seeds),
            "machine": describe_machine(1),
            "texts": {
                text: {key: dataset.describe()[key] for key in ("characters", "sha256", "vocab_size")}
                for text, dataset in datasets.items()
            },
            "arms": {
                arm: {"title": ARMS[arm].title, "ratio": self.ratio(arm), "steps": self.steps(arm)}
                | {"parameters": size[arm], "tuned": tuned[arm].plain()}
                for arm in self.arms
            },
            "runs": runs,
        }


def main() -> None:
    """Run a stage of the study and write its results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tricks", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the texts")
    parser.add_argument("--out", type=Path, default=Path("tricks"))
    parser.add_argument("--stage", choices=tuple(STAGES), default="brief")
    parser.add_argument("--arms", nargs="+", choices=tuple(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    said = parser.parse_args()
    said.out.mkdir(parents=True, exist_ok=True)
    arms = [BASE, *(arm for arm in said.arms if arm != BASE)]
    results = Study(said.stage, arms, said.seeds, said.folder.absolute(), said.out.absolute(), said.workers).run()
    (said.out / f"{said.stage}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
