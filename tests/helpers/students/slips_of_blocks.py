"""Slips in a block: biases, residuals, norms, activations."""

from collections.abc import Callable
from decimal import Decimal

from students.paper import Paper
from students.pen import ONE, ZERO, Row, Value
from students.slips import need, slip

# Biases, residuals, norms, activations.

BIASES = {"mlp.pre": "b_up", "mlp.out": "b_down", "output": "b_o", "out": "b_o"}


def bias_as(name: str, by: int) -> None:
    """A slip with a bias."""

    @slip(name, "q", "k", "v", "output", "out", "mlp.pre", "mlp.out")
    def make(paper: Paper, step: str) -> Value:
        bias = BIASES.get(step, f"b_{step}")
        need(bias in paper.have)
        kept = paper.have[bias]
        paper.have[bias] = [[[entry * by for entry in row] for row in rows] for rows in kept]
        value = paper.own(step)
        paper.have[bias] = kept
        return value


bias_as("bias-missing", 0)
bias_as("bias-twice", 2)


def stream_of(paper: Paper, step: str) -> tuple[str, str]:
    """The stream and what is added to it in a step."""
    post = paper.problem.settings["norm"] == "post"
    return (
        {
            "resid_mid": ("resid_pre", "out"),
            "attn_sum": ("resid_pre", "out"),
            "resid_post": ("resid_mid", "mlp.out"),
            "mlp_sum": ("resid_mid", "mlp.out"),
        }[step]
        if post == step.endswith("sum")
        else ("", "")
    )


@slip("residual-missing", "resid_mid", "attn_sum", "resid_post", "mlp_sum")
def residual_missing(paper: Paper, step: str) -> Value:
    stream, output = stream_of(paper, step)
    need(stream)
    return paper.have[output]


@slip("residual-from-norm", "resid_mid", "resid_post")
def residual_from_norm(paper: Paper, step: str) -> Value:
    need(paper.problem.settings["norm"] == "pre")
    return paper.sum(*{"resid_mid": ("attn_norm", "out"), "resid_post": ("mlp_norm", "mlp.out")}[step])


@slip("residual-first", "resid_post", "mlp_sum")
def residual_first(paper: Paper, step: str) -> Value:
    need(stream_of(paper, step)[0])
    return paper.sum("resid_pre", "mlp.out")


NORMS = {"attn_norm": ("resid_pre", "attn_norm"), "mlp_norm": ("resid_mid", "mlp_norm")}
POST_NORMS = {"resid_mid": ("attn_sum", "attn_norm"), "resid_post": ("mlp_sum", "mlp_norm")}


def norm_of(paper: Paper, step: str) -> tuple[str, str]:
    """The input of a step that is a norm, and the norm's name."""
    names = NORMS if paper.problem.settings["norm"] == "pre" else POST_NORMS
    need(step in names)
    return names[step]


def norm_as(name: str, change: Callable[[Row, Decimal, Decimal], Row]) -> None:
    """A slip in the norm of a row."""

    @slip(name, "attn_norm", "mlp_norm", "resid_mid", "resid_post")
    def make(paper: Paper, step: str) -> Value:
        return paper.norm(*norm_of(paper, step), change)


def sample_variance(row: Row, mean: Decimal, variance: Decimal) -> Row:
    root = (variance * len(row) / (len(row) - 1)).sqrt()
    return [(x - mean) / root for x in row]


norm_as("norm-sample-variance", sample_variance)
norm_as("norm-variance-not-rooted", lambda row, mean, variance: [(x - mean) / variance for x in row])
norm_as("norm-mean-not-subtracted", lambda row, mean, variance: [x / variance.sqrt() for x in row])
norm_as("norm-not-divided", lambda row, mean, variance: [x - mean for x in row])


@slip("norm-missing", "attn_norm", "mlp_norm", "resid_mid", "resid_post")
def norm_missing(paper: Paper, step: str) -> Value:
    return paper.have[norm_of(paper, step)[0]]


def norm_without(name: str, part: str, neutral: Decimal) -> None:
    """A slip that leaves out the gain or the bias of a norm."""

    @slip(name, "attn_norm", "mlp_norm", "resid_mid", "resid_post")
    def make(paper: Paper, step: str) -> Value:
        source, norm = norm_of(paper, step)
        key = f"{norm}_{part}"
        need(key in paper.have)
        kept = paper.have.pop(key)
        value = paper.norm(source, norm)
        paper.have[key] = kept
        return value


norm_without("norm-gain-missing", "gain", ONE)
norm_without("norm-bias-missing", "bias", ZERO)


@slip("norm-before-sum", "resid_mid", "resid_post")
def norm_before_sum(paper: Paper, step: str) -> Value:
    need(paper.problem.settings["norm"] == "post")
    stream, output, norm = {
        "resid_mid": ("resid_pre", "out", "attn_norm"),
        "resid_post": ("resid_mid", "mlp.out", "mlp_norm"),
    }[step]
    paper.have["normed"] = paper.norm(output, norm)
    return paper.sum(stream, "normed")


def activation_as(name: str, given: tuple[str, ...], function: Callable[[Paper, Decimal], Decimal]) -> None:
    """A slip with the activation."""

    @slip(name, "mlp.hidden")
    def make(paper: Paper, step: str) -> Value:
        need(paper.problem.settings["activation"] in given)
        return paper.each("mlp.pre", lambda x: function(paper, x))


activation_as("activation-missing", ("relu", "gelu"), lambda paper, x: x)
activation_as("activation-gelu", ("relu",), lambda paper, x: paper.pen.gelu(x))
activation_as("activation-relu", ("gelu",), lambda paper, x: max(x, ZERO))
activation_as("activation-absolute", ("relu",), lambda paper, x: abs(x))
