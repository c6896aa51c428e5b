"""A Transformer language model in one file of plain PyTorch: read the text, train, sample, explain one number.

    python docs/one_file.py                 # on the bundled play, about two minutes on a laptop
    python docs/one_file.py my.txt          # on your own text
    python docs/one_file.py runs/mine       # the weights of a Vitral run with this architecture: no training

It needs PyTorch alone (the third line also safetensors). Read it from the top: a part uses only the parts above it.
Shapes: B sequences, T tokens, V tokens of the vocabulary, D numbers a token (d_model), H heads of d = D / H numbers.
"""

import json
import math
import sys
import tomllib
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

CONTEXT, D_MODEL, HEADS, LAYERS, STEPS, BATCH, RATE = 64, 96, 4, 2, 1200, 32, 3e-3
PLAY = Path(__file__).parents[1] / "src/vitral/data/texts/the-window-of-aldermere.txt"


# 1. Tokens: one number for each character of the text. Number 0 is kept for padding, which this file never uses.


class Tokenizer:
    def __init__(self, characters):
        self.characters = ["<PAD>", *characters]
        self.number = {character: number for number, character in enumerate(self.characters)}

    def encode(self, text):
        return torch.tensor([self.number[character] for character in text])

    def decode(self, tokens):
        return "".join(self.characters[token] for token in tokens)


# 2. Attention: every token asks (q), every earlier token answers (k) and hands over a value (v). The product q · k says
# how well they fit. Both are turned by their position first, so that it depends on how far apart the tokens are.


def turned(x):  # [B, H, T, d]: numbers i and i + d/2 are a point of the plane, turned by position / 10000^(2i/d)
    T, half = x.shape[2], x.shape[3] // 2
    angles = torch.outer(torch.arange(T), 10_000.0 ** (-torch.arange(half) / half))
    (a, b), cos, sin = x.chunk(2, dim=-1), angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.in_proj = nn.Linear(d_model, 3 * d_model)  # W_Q, W_K and W_V of all heads, one below the other
        self.out_proj = nn.Linear(d_model, d_model)  # W_O
        self.steps = {}  # the last call's numbers, to look at

    def forward(self, x):  # [B, T, D] → [B, T, D]
        B, T, D = x.shape
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in self.in_proj(x).chunk(3, dim=-1))
        q, k = turned(q), turned(k)
        scores = q @ k.mT  # [B, H, T, T]: how well each query fits each key
        scaled = scores / math.sqrt(q.shape[-1])  # so that they do not grow with d
        # A token must not see the tokens that it has to guess, those after it.
        masked = scaled.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
        weights = masked.softmax(dim=-1)  # each row is positive and sums to one
        z = weights @ v  # [B, H, T, d]: a weighted mean of the values
        out = self.out_proj(z.transpose(1, 2).reshape(B, T, D))  # the heads side by side, mixed
        self.steps = {"q": q, "k": k, "v": v, "scores": scores, "scaled": scaled, "weights": weights, "z": z}
        return out


# 3. The model: a stream of D numbers a token, to which attention and a feed-forward add, block after block.


class FeedForward(nn.Module):
    def __init__(self, d_model, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, hidden), nn.Linear(hidden, d_model)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, d_model, heads, hidden):
        super().__init__()
        self.attn_norm, self.attn = nn.LayerNorm(d_model), Attention(d_model, heads)
        self.mlp_norm, self.mlp = nn.LayerNorm(d_model), FeedForward(d_model, hidden)

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))  # look at other tokens
        return x + self.mlp(self.mlp_norm(x))  # think about what was seen, each token for itself


class Transformer(nn.Module):
    def __init__(self, vocabulary, context=CONTEXT, d_model=D_MODEL, heads=HEADS, layers=LAYERS, hidden=None):
        super().__init__()
        self.context = context
        self.token_embedding = nn.Embedding(vocabulary, d_model)
        self.blocks = nn.ModuleList(Block(d_model, heads, hidden or 4 * d_model) for _ in range(layers))
        self.final_norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocabulary, bias=False)
        nn.init.normal_(self.token_embedding.weight, std=0.02)

    def forward(self, tokens):  # [B, T] → logits [B, T, V]: a score for every token that could come next
        x = self.token_embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.final_norm(x))


# 4. Training: the loss is -log of the probability that the model gave to the token that came, in nats. Lower is better.


def loss_of(model, tokens):
    windows = tokens.unfold(0, model.context + 1, 1)[torch.randint(len(tokens) - model.context, (BATCH,))]
    inputs, targets = windows[:, :-1], windows[:, 1:]  # the target of a token is the token after it
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def train(model, tokens, steps=STEPS):
    cut = len(tokens) * 9 // 10  # the last tenth is for testing: the model never learns from it
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=0.1)
    for step in range(steps):
        for group in optimizer.param_groups:  # a short warm-up, then down along a cosine
            group["lr"] = RATE * min(1, (step + 1) / 50) * (0.1 + 0.45 * (1 + math.cos(math.pi * step / steps)))
        loss = loss_of(model, tokens[:cut])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0 or step == steps - 1:
            with torch.no_grad():
                test = sum(loss_of(model, tokens[cut:]).item() for _ in range(20)) / 20
            print(f"step {step:5}   training {loss.item():.3f}   test {test:.3f} nats a token")


# 5. Sampling: draw the next token from the probabilities, append it, and again. A low temperature plays safe.


@torch.no_grad()
def sample(model, tokenizer, prompt, length=300, temperature=0.8):
    tokens = tokenizer.encode(prompt)[None]
    for _ in range(length):
        logits = model(tokens[:, -model.context :])[0, -1]
        logits[0] = -math.inf  # never padding
        drawn = torch.multinomial((logits / temperature).softmax(dim=-1), 1)
        tokens = torch.cat([tokens, drawn[None]], dim=1)
    return tokenizer.decode(tokens[0].tolist())


# 6. One cell explained: how much the last token looks at each earlier one in one head, from the vectors to the weight.


@torch.no_grad()
def explain(model, tokenizer, text, layer=0, head=0):
    model(tokenizer.encode(text)[None])
    steps = {name: tensor[0, head] for name, tensor in model.blocks[layer].attn.steps.items()}
    q, row = steps["q"][-1], steps["weights"][-1]
    key, d, scaled = int(row.argmax()), len(q), steps["scaled"][-1]
    k = steps["k"][key]
    products = " + ".join(f"({a:.2f} · {b:.2f})" for a, b in zip(q[:3].tolist(), k[:3].tolist(), strict=True))
    print(f"Block {layer}, head {head}: the last character {text[-1]!r} looks most at number {key}, {text[key]!r}.")
    print(f"score  = q · k = {products} + … {d} products = {q @ k:.3f}")
    print(f"scaled = score / √{d} = {scaled[key]:.3f}")
    print(f"weight = e^{scaled[key]:.3f} / {scaled.exp().sum():.3f} (the sum over all {len(row)}) = {row[key]:.3f}")
    return key, row[key].item()


# 7. The weights of a Vitral run have the same names, so they fit into this model as they are.


def load(folder: Path):
    from safetensors.torch import load_file

    config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))["model"]
    weights = load_file(sorted(folder.glob("steps/step-*"))[-1] / "model.safetensors")
    tokenizer = Tokenizer(json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["tokens"][1:])
    shape = [config[name] for name in ("context_length", "d_model", "num_heads", "num_layers")]
    model = Transformer(len(tokenizer.characters), *shape, weights["blocks.0.mlp.up.weight"].shape[0])
    model.load_state_dict(weights)
    return model, tokenizer


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else PLAY
    torch.manual_seed(1)
    if source.is_dir():
        model, tokenizer = load(source)
    else:
        text = source.read_text(encoding="utf-8")
        tokenizer = Tokenizer(sorted(set(text)))
        model = Transformer(len(tokenizer.characters))
        train(model, tokenizer.encode(text))
    print(written := sample(model, tokenizer, tokenizer.characters[1]))
    explain(model, tokenizer, written[-20:])
