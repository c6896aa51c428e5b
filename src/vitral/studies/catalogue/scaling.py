"""A grid of sizes and budgets, the laws it obeys, and a model ten times larger that has to obey them too."""

from typing import Any

from vitral.studies.design import BUDGETS, Arm, Budget, BudgetName, Study

BASE_WIDTH, BASE_STEPS = 64, 480
TEN_TIMES = 204
"""Its blocks hold ten times the parameters of those of BASE_WIDTH: √10 times as wide, and divisible by the heads."""
PAIRS = 512

_WIDTHS: dict[int, BudgetName] = {64: "quick", 16: "quick", 24: "quick", 32: "standard", 40: "quick"}
_STEPS: dict[int, BudgetName] = {60: "quick", 120: "quick", 240: "quick", 480: "quick", 960: "standard"}


def _run(width: int, steps: int) -> dict[str, Any]:
    """A run of its own: the schedule ends where the budget does (Hoffmann et al. 2022, §3.1)."""
    return {
        "model": {"d_model": width},
        "training": {
            "steps": steps,
            "evaluate_every": steps,
            "schedule": {"warmup_steps": steps // 20},
        },
    }


def _grid() -> tuple[Arm, ...]:
    """One arm for each width and budget but the base's; where they differ, the larger budget decides."""
    return tuple(
        Arm(
            name=f"d{width}-{steps}",
            title=f"width {width}, {steps} steps",
            changes=_run(width, steps),
            budget=max(of_width, of_steps, key=lambda budget: BUDGETS.index(budget)),
            compared=False,
        )
        for width, of_width in _WIDTHS.items()
        for steps, of_steps in _STEPS.items()
        if (width, steps) != (BASE_WIDTH, BASE_STEPS)
    )


def _pairs(width: int, steps: int, budget: BudgetName) -> Arm:
    changes = _run(width, steps) | {"corpus": {"tokenizer": {"name": "bpe", "vocab_size": PAIRS}}}
    title = f"byte pairs, width {width}, {steps} steps"
    return Arm(name=f"bpe-d{width}-{steps}", title=title, changes=changes, budget=budget, compared=False)


def _ten_times(name: str, steps: int, budget: BudgetName = "quick") -> Arm:
    title = f"ten times larger, {steps} steps"
    return Arm(name=name, title=title, changes=_run(TEN_TIMES, steps), budget=budget, compared=False)


def _seeds(*seeds: int) -> Budget:
    """The grid's runs are the same at every budget; a larger one has more of them."""
    base = _run(BASE_WIDTH, BASE_STEPS)
    return Budget(seeds=seeds, changes=base | {"training": base["training"] | {"evaluation_tokens": 100_000}})


SCALING = Study(
    name="scaling",
    title="Scaling laws, and a model they predict",
    question="By which laws does the loss fall with parameters, tokens and compute, and do they predict?",
    claim=(
        "The loss falls as a power of parameters, tokens and compute while nothing else is short: L(N), L(D) and L(C) "
        "with constants N_c, D_c, C_c and exponents α_N, α_D, α_C; architecture, tokens and vocabulary move them."
    ),
    design=(
        "Every size is trained at every budget of steps as a run of its own, its schedule ending where it ends. All "
        "have two layers of four heads and differ in width. The learning rates are the base's for all: the matrices' "
        "updates are orthogonal ones (Muon), whose size does not depend on the width. The laws are fitted to the runs "
        "of this grid alone; the runs of a model ten times larger than its largest are predicted first and compared "
        "after. Some of the grid's places are trained on byte pairs too: four at quick; from standard on "
        "twelve, three of the five widths at four of the five numbers of steps."
    ),
    arms=(
        Arm(name=f"d{BASE_WIDTH}-{BASE_STEPS}", title=f"width {BASE_WIDTH}, {BASE_STEPS} steps"),
        *_grid(),
        _ten_times("ten-times", 240),
        _ten_times("ten-times-longer", 960, "standard"),
        *(
            _pairs(width, steps, "quick" if width in (16, 64) and steps in (60, 240) else "standard")
            for width in (16, 24, 64)
            for steps in (60, 120, 240, 480)
        ),
    ),
    budgets={"quick": _seeds(1), "standard": _seeds(1, 2), "full": _seeds(1, 2, 3, 4, 5)},
    probes=("scaling-fit",),
    unit="bits per character",
    varies_text=True,
    source=(
        "Course notes, document 001 and its reference 8: N_c, D_c, C_c, α_N, α_D, α_C relate the loss to parameters, "
        "data and compute. Kaplan et al. 2020, equations 1.1 to 1.3; Hoffmann et al. 2022, equations 2 to 4."
    ),
)
