"""A baseline in a process of its own: `python -m benchmarks.peers.training RECIPE_JSON SEED`.

Prints one line of JSON: the time right after the last step, and the test loss, measured after it.
"""

import json
import sys
import time
from dataclasses import replace

import torch
from torch.nn import functional

from benchmarks.ours import Feed, feed
from benchmarks.peers.plain import PlainGPT
from benchmarks.recipes import Recipe
from benchmarks.shapes import Shape, shakespeare
from vitral.data import CorpusConfig, Dataset, Split, prepare, windows

EVALUATION_BATCH = 256
BETAS = (0.9, 0.99)


def train(recipe: Recipe, dataset: Dataset, seed: int) -> PlainGPT:
    """Train a plain GPT of the preset's shape by the recipe."""
    shape = shape_of(recipe, dataset.tokenizer.vocab_size)
    torch.manual_seed(seed)
    model = PlainGPT(shape)
    take_steps(model, optimizer_of(model, recipe), recipe, feed(shape, dataset, seed))
    return model


def optimizer_of(model: PlainGPT, recipe: Recipe) -> torch.optim.AdamW:
    """The recipe's, with weight decay for matrices only."""
    groups = [
        {"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": recipe.weight_decay},
        {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.rate, betas=BETAS, fused=recipe.fused)


def take_steps(model: PlainGPT, optimizer: torch.optim.AdamW, recipe: Recipe, draw: Feed) -> None:
    """All the recipe's steps."""
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate_at(step)
        _, loss = model(*draw())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def shape_of(recipe: Recipe, vocab: int) -> Shape:
    """The preset's shape with the recipe's batch, dropout and initial numbers."""
    return replace(shakespeare(), vocab=vocab, batch=recipe.batch, dropout=recipe.dropout, init=recipe.init)


@torch.inference_mode()
def part_loss(model: PlainGPT, part: Split, batch: int = EVALUATION_BATCH) -> float:
    """Nats per token over consecutive windows, every target once: Vitral's definition, in the plain model's loop."""
    model.eval()
    nats, count = 0.0, 0
    for inputs, targets in windows(part, model.context, batch):
        logits, _ = model(inputs, targets)
        nats += functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").item()
        count += targets.numel()
    return nats / count


def main() -> None:
    """Train, look at the clock, measure, print."""
    recipe, seed = Recipe.from_json(sys.argv[1]), int(sys.argv[2])
    dataset = prepare(CorpusConfig(source="shakespeare"))
    model = train(recipe, dataset, seed)
    ended = time.time()
    loss = part_loss(model, dataset.splits["test"])
    print(json.dumps({"unix": ended, "test_loss": loss, "steps": recipe.steps}))


if __name__ == "__main__":
    main()
