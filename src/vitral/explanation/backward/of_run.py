"""The gradient of a model's loss at one of its activations, where the steps of a block begin."""

import copy

import torch
from torch import Tensor

from vitral.core.taps import Recorder
from vitral.model import Transformer


def gradient_at(model: Transformer, rows: tuple[int, ...], position: int, name: str) -> Tensor:
    """The gradient of −log p of the token after a position, computed by autograd in double precision.

    Args:
        model: stays as it is.
        rows: the tokens.
        position: the loss is that of the next token.
        name: of the activation, as "blocks.0.attn.out".

    Returns:
        The gradient, of the activation's shape without its axis of texts.
    """
    exact = copy.deepcopy(model).cpu().double().eval()
    recorder = Recorder()
    with torch.inference_mode(False), torch.enable_grad():
        logits = exact(torch.tensor([rows]), tap=recorder)
        loss = torch.nn.functional.cross_entropy(logits[0, position], torch.tensor(rows[position + 1]))
        (gradient,) = torch.autograd.grad(loss, [recorder.kept[name]])
    return gradient[0].detach()
