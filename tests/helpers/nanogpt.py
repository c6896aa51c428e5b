"""nanoGPT's `ckpt.pt`, small, as its train.py saves it."""

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

WIDTH, CONTEXT, LAYERS, HEADS = 12, 8, 2, 3


def state(rows: int, bias: bool) -> dict[str, Tensor]:
    """The tensors of nanoGPT by its names, the head tied."""
    made = torch.Generator().manual_seed(3)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=made) / 2

    held = {"transformer.wte.weight": some(rows, WIDTH), "transformer.wpe.weight": some(CONTEXT, WIDTH)}
    for layer in range(LAYERS):
        at = f"transformer.h.{layer}"
        for name, shape in (
            ("ln_1", (WIDTH,)),
            ("attn.c_attn", (3 * WIDTH, WIDTH)),
            ("attn.c_proj", (WIDTH, WIDTH)),
            ("ln_2", (WIDTH,)),
            ("mlp.c_fc", (4 * WIDTH, WIDTH)),
            ("mlp.c_proj", (WIDTH, 4 * WIDTH)),
        ):
            held[f"{at}.{name}.weight"] = some(*shape)
            held |= {f"{at}.{name}.bias": some(shape[0])} if bias else {}
        held[f"{at}.attn.bias"] = torch.ones(1, 1, CONTEXT, CONTEXT).tril()
    held["transformer.ln_f.weight"] = some(WIDTH)
    held |= {"transformer.ln_f.bias": some(WIDTH)} if bias else {}
    return held | {"lm_head.weight": held["transformer.wte.weight"]}


def saved(path: Path, *, rows: int, bias: bool = True, prefix: str = "", **changes: Any) -> Path:
    """A file as train.py saves it."""
    said = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH, "block_size": CONTEXT, "bias": bias}
    held = {
        "model": {f"{prefix}{name}": tensor for name, tensor in state(rows, bias).items()},
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.95)}]},
        "model_args": said | {"vocab_size": rows, "dropout": 0.2} | changes,
        "iter_num": 250,
        "best_val_loss": torch.tensor(1.5),
        "config": {"dataset": "shakespeare_char", "compile": False},
    }
    torch.save(held, path)
    return path


def of_our_sizes(written: str) -> str:
    """A map of names with the sizes of the models that are made here."""
    for key, size in {"context_length": CONTEXT, "d_model": WIDTH, "num_layers": LAYERS, "num_heads": HEADS}.items():
        written, found = re.subn(rf"^{key} = \d+$", f"{key} = {size}", written, flags=re.MULTILINE)
        assert found == 1
    return written
