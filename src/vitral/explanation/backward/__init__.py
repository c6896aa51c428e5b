"""The backward pass of a sheet: the gradient of a loss with respect to every quantity, each with its arithmetic."""

from vitral.explanation.backward import attention, block  # noqa: F401  they fill the rules
from vitral.explanation.backward.gradients import Backward, Loss, log_loss, loss_of, named_cell

__all__ = ["Backward", "Loss", "log_loss", "loss_of", "named_cell"]
