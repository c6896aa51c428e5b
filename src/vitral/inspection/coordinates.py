"""The coordinate check: how far training moves each activation of a model (Yang et al. 2022, appendix D.1).

Where initial values and learning rates suit the width, an activation moves by about as much at any width. Where it
moves further the wider the model is, a learning rate that suits a narrow model is too high for a wide one.
"""

from jaxtyping import Int
from torch import Tensor

from vitral.core.checked import checked
from vitral.core.errors import UsageError
from vitral.model import Transformer


@checked(first=True)
def activation_movements(
    before: Transformer, after: Transformer, tokens: Int[Tensor, "batch time"]
) -> dict[str, float]:
    """The root mean square of the difference of every activation of two models of one kind, in float64, by name.

    Args:
        before: the model at one time of its training.
        after: the model at another.
        tokens: what both read.

    Raises:
        UsageError: the models do not have the same activations.
    """
    if before.config != after.config:
        raise UsageError("activation_movements: the models have different configurations")
    first, last = (model.trace(tokens, model.activation_names) for model in (before, after))
    return {
        name: float((last[name].double() - value.double()).square().mean().sqrt())
        for name, value in first.items()
        if value.isfinite().all() and last[name].isfinite().all()
    }
