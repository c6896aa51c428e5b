"""The canonical names of tensor axes, attention steps and model activations.

Traces, explanations, inspection, pages and documentation all use these names and no others.
"""

from vitral.core.config import nearest
from vitral.core.errors import UsageError

AXES = {
    "batch": "sequences in a batch",
    "time": "query positions",
    "source": "key and value positions",
    "heads": "attention heads",
    "d_model": "width of the residual stream",
    "d_head": "width of one head, also written d_k",
    "d_ff": "width of the feed-forward's hidden layer",
    "vocab": "tokens of the vocabulary",
    "layers": "blocks",
}

ATTENTION_STEPS = {
    "q": "queries: what each position looks for",
    "k": "keys: what each position offers to be found by",
    "v": "values: what each position hands over when found",
    "scores": "q·k for every query and key",
    "scaled": "scores times the scale",
    "masked": "scaled, with any position bias added and -inf where looking is not allowed",
    "weights": "softmax of masked, over the keys",
    "z": "each head's weighted sum of values",
    "out": "the heads side by side, times W_O",
}


def activation_names(num_layers: int) -> list[str]:
    """The names of all activations of a model with `num_layers` blocks, in the order they happen.

    >>> activation_names(1)[:3]
    ['embed', 'blocks.0.resid_pre', 'blocks.0.attn.q']
    """
    names = ["embed"]
    for layer in range(num_layers):
        steps = [f"attn.{step}" for step in ATTENTION_STEPS]
        inside = ["resid_pre", *steps, "resid_mid", "mlp.hidden", "mlp.out", "resid_post"]
        names += [f"blocks.{layer}.{name}" for name in inside]
    return [*names, "final_norm", "logits"]


def require_known(names: list[str], num_layers: int) -> None:
    """Refuse a name that no activation of such a model has.

    Raises:
        UsageError: naming the nearest known activation.
    """
    known = activation_names(num_layers)
    for name in names:
        if name not in known:
            raise UsageError(f"no activation is called {name!r}, {nearest(name, known)}")
