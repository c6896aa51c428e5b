"""Write docs/studies/tricks.md from what `benchmarks.tricks` has measured: python -m docs.make_tricks [FOLDER].

A folder's results are taken over as they are; every number of the page is judged and written from them.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from json import loads
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.tricks import BASE, GATE_INPUTS, ROUNDS
from docs.make_studies import FOLDER, table
from vitral.core.text import minus, p_text, unbroken
from vitral.studies.claims import Claim, Comparison, Failures, Quantity
from vitral.studies.judging import judge_losses
from vitral.studies.losses import CHOICE, difference_text
from vitral.studies.results import Trial, trial_error

DATA = FOLDER / "tricks"
STAGES = ("brief", "confirm", "long")
MARGIN = 0.01
TEXTS = {
    "tinyshakespeare": "tiny Shakespeare",
    "machado": "Machado de Assis, Portuguese",
    "python": "Python's standard library",
}
CHANGES = {
    "base": "nothing: the plan as it is",
    "ema": "the model that is kept is a running average of recent weights",
    "tail-mean": "the model that is kept is the plain mean over the last steps",
    "value-embeddings": "each layer adds a learned vector of the token itself to its values",
    "bigram": "a learned table of token pairs adds a score to each next token",
    "qk-norm": "queries and keys are scaled to unit mean square before their product",
    "larger-decay": "a wider model, whose weights are pulled to zero at every step",
    "shuffled": "each pass reads every window once, in new order, instead of random windows",
    "context": "windows are half as long, and twice as many, in the first half",
    "normuon": "each row of a Muon update is divided by its usual size",
    "skips": "the first embedding is added again to later blocks, weighted for each channel",
    "head-gates": "each head's output is turned up or down by what it reads",
    "multi-token": "a second head guesses one token further; its loss fades out",
}
"""What each trick does to the plan's recipe."""
Results = Mapping[str, Any]


def judged(results: Results) -> dict[str, tuple[Claim, ...]]:
    """By text, the claim of every trick against the base: one family for each text."""
    tuned = {arm: told["tuned"] for arm, told in results["arms"].items()}
    trials = [
        Trial(one["factor"], one["values"], tuple(one["losses"])) for each in tuned.values() for one in each["trials"]
    ]
    choice, found = CHOICE * trial_error(trials) ** 2, dict[str, tuple[Claim, ...]]()
    for text in results["texts"]:
        runs = [run for run in results["runs"] if run["text"] == text]
        losses = {
            arm: {run["seed"]: run["test"] for run in runs if run["arm"] == arm and run["test"] is not None}
            for arm in tuned
        }
        lost = {arm: results["seeds"] - len(each) for arm, each in losses.items()}
        comparisons = [
            Comparison(
                results["arms"][arm]["title"],
                results["arms"][BASE]["title"],
                Quantity("test loss", unit="nats", better="lower"),
                losses[arm],
                losses[BASE],
                arm,
                rival=BASE,
                failures=Failures(lost[arm], results["seeds"], lost[BASE], results["seeds"])
                if lost[arm] or lost[BASE]
                else None,
                choice=0.0 if tuned[arm]["chosen"] == tuned[BASE]["chosen"] else choice,
            )
            for arm in tuned
            if arm != BASE
        ]
        found[text] = judge_losses(comparisons, margin=MARGIN)
    return found


def survivors(claims: Mapping[str, Sequence[Claim]]) -> list[str]:
    """Tricks that are better on two texts or more, and worse on none."""
    said: dict[str, list[str]] = {}
    for each in claims.values():
        for claim in each:
            said.setdefault(claim.comparison.subject, []).append(claim.verdict)
    return [one for one, words in said.items() if words.count("better") >= 2 and not {"worse", "fails"} & {*words}]


def _costs(results: Results) -> str:
    """The table of what each trick costs, and of the rate that was chosen for it."""
    rows = []
    for arm, told in results["arms"].items():
        tuned = told["tuned"]
        how = "the base's, by a tie" if tuned["by_tie"] else "a better value may lie beyond" if tuned["at_edge"] else ""
        rate = f"× {tuned['chosen']:.3g}{f' ({how})' if how else ''}"
        rows.append(
            (told["title"], CHANGES[arm], f"{told['parameters']:,}", f"{told['ratio']:.2f}", f"{told['steps']:,}", rate)
        )
    head = (
        "trick",
        "what it changes",
        "parameters",
        "processor time of a step",
        "steps in equal time",
        "learning rates",
    )
    return table(head, rows)


def _differences(results: Results, claims: Mapping[str, Sequence[Claim]]) -> str:
    """The table of differences, a column for each text."""
    texts = list(claims)
    base = [
        minus(f"{fmean(run['test'] for run in results['runs'] if (run['text'], run['arm']) == (text, BASE)):.3f}")
        for text in texts
    ]
    rows = [(results["arms"][BASE]["title"], *base)]
    for each in zip(*claims.values(), strict=True):
        rows.append((each[0].comparison.subject, *map(_cell, each)))
    return table(("test loss, nats per token", *(TEXTS[text] for text in texts)), rows)


def _texts(results: Results) -> str:
    """The table of texts."""
    rows = [
        (TEXTS[text], f"{told['characters']:,}", str(told["vocab_size"]), f"`{told['sha256'][:12]}`")
        for text, told in results["texts"].items()
    ]
    return table(("text", "characters", "vocabulary", "SHA-256"), rows)


def _verdict(claims: Mapping[str, Sequence[Claim]]) -> str:
    """What survives of a stage."""
    kept = survivors(claims)
    return f"**Better on two texts or more and worse on none:** {'; '.join(kept) if kept else 'no trick'}."


def _cell(claim: Claim) -> str:
    p = "" if claim.p is None else f", p {unbroken(p_text(claim.p))}"
    word = claim.verdict if claim.p is not None else "not judged"
    told = f"{difference_text(claim)}{p}: {word}"
    return f"**{told}**" if word == "better" else told


def drawn(claims: Mapping[str, Sequence[Claim]]) -> bytes:
    """The differences as a forest plot, in percent."""
    from vitral.report.intervals import Row, interval_plot
    from vitral.report.style import drawn_bytes

    rows = []
    for text, each in claims.items():
        for claim in each:
            one, reference = claim.comparison, claim.reference
            low, high = (None if end is None else 100 * end / reference for end in (claim.low, claim.high))
            dots = [100 * (one.values[seed] / one.others[seed] - 1) for seed in one.values if seed in one.others]
            rows.append(
                Row(one.subject, f"{one.against}: {TEXTS[text]}", claim.percent, low, high, dots, claim.verdict)
            )
    return drawn_bytes(interval_plot(rows, "difference of the test loss (%)", margin=100 * MARGIN, unit="%"))


PAGE = """# Tricks of fast training

Which tricks by which others train small language models faster lower the loss on two cores, at equal processor time?

## The question

The records of [modded-nanogpt](https://github.com/KellerJordan/modded-nanogpt) and
[nanochat](https://github.com/karpathy/nanochat) collect tricks for models of 100 million parameters and more, trained
on GPUs. Here a model has {parameters:,} parameters (on tiny Shakespeare), reads characters, and trains for seconds.
None of these tricks was in Vitral's plan when they were measured.

## Design

- The base is the model and the optimizer that `vitral train TEXT --minutes 0.5` plans on two cores: Muon, a linear
  schedule, 16 random windows of 128 characters in a step, bfloat16.
- *Equal time.* The processor time of a step was measured once, one thread, {rounds} times in turns with the base; the
  median of the ratios decides how many steps a trick gets while the base makes {steps:,}, about what fits into 15
  seconds. After that no number depends on the load of the machine.
- *Tuned.* Both learning rates of the base and of every trick were tried at 1, 1.4 and 1.96 times the plan's, and at one
  further value beyond an edge, from two seeds of their own, by the validation part of tiny Shakespeare. Values that the
  trials cannot tell apart take the base's.
- *Judged.* {seeds} fresh seeds, the same for all, by the rule of all [studies](README.md): one family of {family}
  contrasts for each text. Of tiny Shakespeare the test part is the second half of the tenth that nanoGPT holds out (the
  first half is the validation part), of the other texts blocks spread over the text; at most 120,000 tokens.

{texts}

## All tricks, 15 seconds

{costs}

{differences}

![Differences of the test loss by text](tricks/differences.svg)

{verdict}

The learning rate matters as much as the best of them: on the validation part of tiny Shakespeare the base's loss is
{faster:.3f} at {factor:g} times the plan's rates, and {planned:.3f} at the plan's (two seeds).

{again}

## What it says

At this size and in seconds most tricks change nothing that can be seen, and some cost more time than they save: of
{family} tricks at 15 seconds none passes the rule, and with a rate of its own the base gains as much as from the best.
A short context in the first half of the steps is the one that passes when measured again at 30 seconds, by less than
one percent. At three minutes, on tiny Shakespeare, three seeds show no difference. So no trick entered the recipe.

## Limits

- One size of model and few steps, {passes:.1f} passes over tiny Shakespeare in 15 seconds: tricks that need many passes
  (averages, decay) cannot show here what they do later.
- Each trick is measured in one form. The decay of the average, the weight of the second loss and the context of the
  first half were not tuned; the schedule falls to zero, which leaves little to average; a skip from the embedding
  stands for the U-net's, which need more than two blocks. A gate that reads all channels was worse on validation and
  gave way to one that reads {gate}, as in modded-nanogpt.
- The rates were tuned on one text. 0.7 times the plan's was tried first, of the base and five tricks, and was the
  worst of all.
- Five seeds were judged before the sixth was trained. What is better or worse was the same.

## Again

`python -m benchmarks.tricks FOLDER --out tricks`, with `tinyshakespeare.txt` and `machado.txt` in the folder and
`OMP_NUM_THREADS=1`: one process for each core; a study that was stopped goes on. Then the same with
`--stage confirm --arms shuffled context` and with `--stage long --arms context --seeds 3`, and
`python -m docs.make_tricks tricks` writes this page. The data, every run and trial of the tables: {data};
the trials at 0.7 and the wider gate were not kept.
Measured on {machine}.
"""

AGAIN = {
    "confirm": """## Two tricks again, 30 seconds

The two tricks that were better on one text, with {seeds} other seeds, {steps} steps and the plan's own rates, which is
what a recipe would use: one family of two contrasts for each text. The table above has chosen them, by the same test
parts.""",
    "long": """## Three minutes

What the plan of three minutes trains: {parameters:,} parameters, windows of 256 characters, {steps:,} steps, at the
plan's rates, {seeds} seeds.""",
}


def page() -> str:
    """The page."""
    stages = {stage: found for stage in STAGES if (found := results_of(stage)) is not None}
    brief = stages["brief"]
    arms, machine, claims = brief["arms"], brief["machine"], judged(brief)
    tuned = arms[BASE]["tuned"]
    by_factor = {trial["factor"]: trial["validation_loss"] for trial in tuned["trials"]}
    return PAGE.format(
        parameters=arms[BASE]["parameters"],
        rounds=ROUNDS,
        steps=brief["steps"],
        seeds=brief["seeds"],
        family=len(arms) - 1,
        texts=_texts(brief),
        costs=_costs(brief),
        differences=_differences(brief, claims),
        verdict=_verdict(claims),
        faster=by_factor[tuned["chosen"]],
        factor=tuned["chosen"],
        planned=by_factor[1.0],
        again="\n\n".join(_again(stage, found) for stage, found in stages.items() if stage in AGAIN),
        passes=brief["steps"] * 16 * 128 / (0.9 * brief["texts"]["tinyshakespeare"]["characters"]),
        gate=GATE_INPUTS,
        data=", ".join(f"[{stage}.json](tricks/{stage}.json)" for stage in stages),
        machine=f"{machine['cores']} cores of an {machine['processor']}, PyTorch {machine['packages']['torch']}",
    )


def _by_seed(results: Results) -> str:
    """The losses of every run, for a stage of few seeds."""
    rows = [
        (results["arms"][run["arm"]]["title"], str(run["seed"]), f"{run['validation']:.3f}", f"{run['test']:.3f}")
        for run in results["runs"]
    ]
    return table(("run", "seed", "validation", "test"), rows)


def _again(stage: str, results: Results) -> str:
    """The section of a later stage."""
    claims = judged(results)
    about = {key: results[key] for key in ("seeds", "steps")} | {"parameters": results["arms"][BASE]["parameters"]}
    steps = ", ".join(f"{told['title']} {told['steps']:,}" for told in results["arms"].values())
    parts = [AGAIN[stage].format(**about), f"Steps: {steps}.", _differences(results, claims)]
    return "\n\n".join([*parts, _verdict(claims) if len(claims) > 1 else _by_seed(results)])


def results_of(stage: str) -> Results | None:
    """What was measured in a stage; None where nothing was."""
    path = DATA / f"{stage}.json"
    return loads(path.read_text(encoding="utf-8")) if path.exists() else None


def main(folders: Sequence[str]) -> None:
    """Take over the results of a folder, if one is given; write the page and its figure."""
    DATA.mkdir(exist_ok=True)
    for folder in map(Path, folders):
        for stage in STAGES:
            if (folder / f"{stage}.json").exists():
                shutil.copy(folder / f"{stage}.json", DATA / f"{stage}.json")
    (FOLDER / "tricks.md").write_text(page(), encoding="utf-8", newline="\n")
    (DATA / "differences.svg").write_bytes(drawn(judged(results_of("brief") or {})))


if __name__ == "__main__":
    main(sys.argv[1:])
