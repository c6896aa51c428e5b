"""Where the norm stands, which norm it is, and what residual and warm-up have to do with it, shallow and deep."""

from typing import Any

from vitral.studies.design import Arm, Budget, Study

SHALLOW, DEEP = 2, 12
NO_WARMUP = {"schedule": {"warmup_steps": 0}}


def _deep(**model: Any) -> dict[str, Any]:
    """The changes of an arm with many blocks."""
    return {"model": {"num_layers": DEEP, **model}}


def _base(steps: int, **training: int) -> dict[str, Any]:
    """What the whole study changes: narrow and few windows a step, so that twelve blocks can be afforded."""
    return {
        "model": {"d_model": 64, "num_heads": 4},
        "training": {"steps": steps, "batch_size": 16, "evaluate_every": steps // 2, **training},
    }


NORM = Study(
    name="norm",
    title="Norm, residual, depth",
    question="What does it matter where the norm stands, which one it is, and whether there is a residual, in depth?",
    claim=(
        "Pre-norm should train deep models that post-norm cannot train without warm-up (Xiong et al. 2020), and the "
        "residual should keep the gradient alive in depth."
    ),
    source=(
        "Course notes, documents 002 to 004: pre-norm with a final norm, post-norm; the residual keeps gradients alive."
    ),
    design=(
        "The same model, narrow so that twelve blocks can be afforded, with 2 and with 12 blocks: pre-norm, post-norm, "
        "none, RMSNorm; with and without the learning rate's warm-up; with and without residual. The claim about "
        "warm-up was made of Adam and of warm-ups of thousands of steps. Unless another base is given, the optimizer "
        "here is Muon, whose steps do not grow with the gradient, and the warm-up is short. So that claim is hardly "
        "tested: no difference here would not refute it, nor would one confirm it. "
        "The norm of the loss's gradient is measured at every block, before the first step and after the last. Arms "
        "are compared with pre-norm of the same depth, arms without warm-up with the same arm with it."
    ),
    arms=(
        Arm(name="pre-2", title="pre-norm, 2 blocks"),
        Arm(name="post-2", title="post-norm, 2 blocks", changes={"model": {"norm": "post"}}),
        Arm(name="none-2", title="no norm, 2 blocks", changes={"model": {"norm": "none"}}),
        Arm(
            name="rmsnorm-2",
            title="RMSNorm, 2 blocks",
            changes={"model": {"norm_type": "rmsnorm"}},
            budget="standard",
        ),
        Arm(
            name="no-residual-2",
            title="no residual, 2 blocks",
            changes={"model": {"residual": False}},
            budget="standard",
        ),
        Arm(
            name="pre-2-no-warmup",
            title="pre-norm, 2 blocks, no warm-up",
            changes={"training": NO_WARMUP},
            budget="full",
        ),
        Arm(
            name="post-2-no-warmup",
            title="post-norm, 2 blocks, no warm-up",
            changes={"model": {"norm": "post"}, "training": NO_WARMUP},
            budget="standard",
            against="post-2",
        ),
        Arm(name="pre-12", title="pre-norm, 12 blocks", changes=_deep()),
        Arm(name="post-12", title="post-norm, 12 blocks", changes=_deep(norm="post"), against="pre-12"),
        Arm(
            name="none-12", title="no norm, 12 blocks", changes=_deep(norm="none"), budget="standard", against="pre-12"
        ),
        Arm(
            name="rmsnorm-12",
            title="RMSNorm, 12 blocks",
            changes=_deep(norm_type="rmsnorm"),
            budget="standard",
            against="pre-12",
        ),
        Arm(
            name="no-residual-12",
            title="no residual, 12 blocks",
            changes=_deep(residual=False),
            budget="standard",
            against="pre-12",
        ),
        Arm(
            name="pre-12-no-warmup",
            title="pre-norm, 12 blocks, no warm-up",
            changes=_deep() | {"training": NO_WARMUP},
            budget="standard",
            against="pre-12",
        ),
        Arm(
            name="post-12-no-warmup",
            title="post-norm, 12 blocks, no warm-up",
            changes=_deep(norm="post") | {"training": NO_WARMUP},
            budget="standard",
            against="post-12",
        ),
        Arm(
            name="post-12-no-residual",
            title="post-norm, 12 blocks, no residual",
            changes=_deep(norm="post", residual=False),
            budget="full",
            against="post-12",
        ),
    ),
    budgets={
        "quick": Budget(seeds=(1, 2, 3), changes=_base(400, evaluation_tokens=50_000)),
        "standard": Budget(seeds=(1, 2, 3), changes=_base(400)),
        "full": Budget(seeds=(1, 2, 3, 4, 5), changes=_base(3000)),
    },
    probes=("gradients",),
)
