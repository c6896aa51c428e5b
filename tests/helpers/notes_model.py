"""The course notes' model, its attention by torch's own module; it knows nothing of Vitral."""

from typing import Any

import torch
from torch import Tensor, nn

WIDTH, CONTEXT, LAYERS, HEADS, ROWS = 12, 8, 2, 3, 256


class NotesModel(nn.Module):
    """The course notes' model in Python, its attention by torch's own module."""

    def __init__(self, width: int = WIDTH, context: int = CONTEXT, heads: int = HEADS) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(ROWS, width), nn.Embedding(context, width)
        self.MM = nn.ModuleList(nn.MultiheadAttention(width, heads, batch_first=True) for _ in range(LAYERS))
        self.scale1 = nn.ModuleList(nn.LayerNorm(width) for _ in range(LAYERS))
        self.scale2 = nn.ModuleList(nn.LayerNorm(width) for _ in range(LAYERS))
        self.FFN = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)) for _ in range(LAYERS)
        )
        self.scale3, self.ln_f = nn.LayerNorm(width), nn.Linear(width, ROWS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits."""
        time = tokens.shape[1]
        later = torch.ones(time, time).triu(1).bool()
        x = self.wte(tokens) + self.wpe.weight[:time]
        for layer in range(LAYERS):
            inner = self.scale1[layer](x)
            x = x + self.MM[layer](inner, inner, inner, attn_mask=later, need_weights=False)[0]
            x = x + self.FFN[layer](self.scale2[layer](x))
        return self.ln_f(self.scale3(x))


def large(model: nn.Module) -> Any:
    drawn = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=drawn) / 2
    return model.eval()


def notes_tensors(model: NotesModel) -> dict[str, Tensor]:
    """Its tensors by the names that the notes use."""
    return {name.replace("out_proj.", "out_proj_"): tensor for name, tensor in model.state_dict().items()}
