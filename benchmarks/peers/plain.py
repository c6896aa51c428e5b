"""A GPT in plain PyTorch, as most people write it."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.ours import CPU, LEARNING_RATE, Feed
from benchmarks.shapes import Shape


class Attention(nn.Module):
    """Causal self-attention, all heads at once."""

    def __init__(self, shape: Shape) -> None:
        """Make the projections."""
        super().__init__()
        self.heads, self.dropout = shape.heads, shape.dropout
        self.qkv = nn.Linear(shape.d_model, 3 * shape.d_model)
        self.proj = nn.Linear(shape.d_model, shape.d_model)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, time, d_model] to the same."""
        b, t, d = x.shape
        q, k, v = (part.view(b, t, self.heads, d // self.heads).transpose(1, 2) for part in self.qkv(x).split(d, dim=2))
        rate = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)
        return self.proj(y.transpose(1, 2).contiguous().view(b, t, d))


class Block(nn.Module):
    """Attention and feed-forward, pre-norm."""

    def __init__(self, shape: Shape) -> None:
        """Make the parts."""
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(shape.d_model), nn.LayerNorm(shape.d_model)
        self.attn = Attention(shape)
        self.fc = nn.Linear(shape.d_model, 4 * shape.d_model)
        self.proj = nn.Linear(4 * shape.d_model, shape.d_model)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, time, d_model] to the same."""
        x = x + self.attn(self.ln_1(x))
        return x + self.dropout(self.proj(functional.gelu(self.fc(self.ln_2(x)))))


class PlainGPT(nn.Module):
    """Token and position embeddings, blocks, a final norm, a head of its own."""

    def __init__(self, shape: Shape) -> None:
        """Make the model; the global random generator draws its numbers."""
        super().__init__()
        self.context = shape.context
        self.wte, self.wpe = nn.Embedding(shape.vocab, shape.d_model), nn.Embedding(shape.context, shape.d_model)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.ln_f = nn.LayerNorm(shape.d_model)
        self.head = nn.Linear(shape.d_model, shape.vocab, bias=False)
        if shape.init == "gpt2":
            for name, parameter in self.named_parameters():
                if parameter.dim() == 2:
                    narrower = math.sqrt(2 * shape.layers) if name.endswith("proj.weight") else 1.0
                    nn.init.normal_(parameter, std=0.02 / narrower)
                elif name.endswith("bias"):
                    nn.init.zeros_(parameter)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Logits, and the loss where there are targets; without them only the last position's logits."""
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for block in self.blocks:
            x = block(x)
        x = self.ln_f(x)
        if targets is None:
            return self.head(x[:, [-1]]), None
        logits = self.head(x)
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def generate(self, idx: Tensor, max_new_tokens: int) -> Tensor:
        """Sample token by token, each time reading the last `context` tokens anew."""
        for _ in range(max_new_tokens):
            logits, _ = self(idx[:, -self.context :])
            probabilities = functional.softmax(logits[:, -1], dim=-1)
            idx = torch.cat((idx, torch.multinomial(probabilities, num_samples=1)), dim=1)
        return idx


def trainer(
    shape: Shape, feed: Feed, dtype: str = "float32", *, device: torch.device = CPU, compiled: bool = False
) -> Callable[[], object]:
    """One training step; `dtype` is that of the products, as autocast chooses them."""
    model = PlainGPT(shape).to(device)
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    autocast = {"device_type": device.type, "dtype": getattr(torch, dtype), "enabled": dtype != "float32"}

    def step() -> None:
        inputs, targets = (part.to(device) for part in feed())
        with torch.autocast(**autocast):
            _, loss = forward(inputs, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()  # who trains wants to see it

    return step


def generator(shape: Shape, num_tokens: int) -> Callable[[], object]:
    """One sample from one token."""
    model = PlainGPT(shape).eval()
    return lambda: model.generate(torch.ones(1, 1, dtype=torch.long), num_tokens)
