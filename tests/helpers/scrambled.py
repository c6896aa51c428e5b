"""Worked examples of every shape, with numbers claimed at random: mostly wrong, and to be survived."""

import random

from torch import Tensor

ENTRIES = (-2, -1, 0, 0, 1, 1, 2, 0.5, 0.25)


def make_given(seed: int) -> str:
    """An example without claims: grouped heads, more keys than queries, biases, blocks; begun anywhere."""
    rng = random.Random(seed)
    start = rng.choice(("x", "qkv", "block", "scores", "weights"))
    kv_heads, d_head = rng.choice((1, 1, 2)), rng.randint(1, 3)
    heads, d_value = kv_heads * rng.choice((1, 1, 2, 3)), rng.choice((d_head, rng.randint(1, 3)))
    time = rng.randint(1, 4)
    source = time if start in ("x", "block") else time + rng.choice((0, 0, 1, 2))
    d_model = heads * d_value if start == "block" else rng.randint(1, 5)

    def matrix(rows: int, columns: int) -> list[list[float]]:
        return [[rng.choice(ENTRIES) for _ in range(columns)] for _ in range(rows)]

    def stack(count: int, rows: int, columns: int) -> list[list[list[float]]]:
        return [matrix(rows, columns) for _ in range(count)]

    top = {"heads": heads, "decimals": rng.randint(0, 4), "scale": rng.choice(("none", "sqrt", "linear", "adaptive"))}
    given: dict[str, object] = {"v": stack(kv_heads, source, d_value)}
    if start in ("x", "block"):
        given = {"x": matrix(time, d_model), "w_q": stack(heads, d_model, d_head)}
        given |= {"w_k": stack(kv_heads, d_model, d_head), "w_v": stack(kv_heads, d_model, d_value)}
        biases = {"b_q": (heads, d_head), "b_k": (kv_heads, d_head), "b_v": (kv_heads, d_value)}
        given |= {name: matrix(*shape) for name, shape in biases.items() if rng.random() < 0.3}
    elif start == "qkv":
        given |= {"q": stack(heads, time, d_head), "k": stack(kv_heads, source, d_head)}
    elif start == "scores":
        given |= {"scores": stack(heads, time, source), "d_k": d_head}
    else:
        given["weights"] = [[[1 / source] * source for _ in range(time)] for _ in range(heads)]
    if start == "block" or rng.random() < 0.5:
        width = d_model if start == "block" else rng.randint(1, 4)
        given |= {"w_o": matrix(heads * d_value, width)}
        given |= {"b_o": matrix(1, width)[0]} if rng.random() < 0.4 else {}
    if start == "block":
        top |= {"block": rng.choice(("pre", "post")), "norm_type": rng.choice(("layernorm", "rmsnorm"))}
        d_ff = rng.randint(1, 4)
        given |= {"w_1": matrix(d_model, d_ff), "w_2": matrix(d_ff, d_model)} if rng.random() < 0.6 else {}
    mask = rng.choice(('"causal"', '"bidirectional"', '{ name = "window", size = 2 }'))
    lines = [f"mask = {mask}", *(f"{key} = {value!r}" for key, value in top.items()), "[given]"]
    return "\n".join([*lines, *(f"{key} = {value}" for key, value in given.items())]) + "\n"


def make_claims(seed: int, values: dict[str, Tensor], decimals: int) -> str:
    """Claims about some of the quantities: some right, some off, some nonsense, some left open."""
    rng = random.Random(seed)

    def written(tensor: Tensor) -> str:
        if tensor.dim():
            return "[" + ", ".join(map(written, tensor)) + "]"
        if rng.random() < 0.1:
            return rng.choice(('"?"', '"-inf"', "9.5", "-3", "0"))
        if tensor.isinf():
            return '"-inf"'
        return str(round(float(tensor) + rng.choice((0, 0, -1, 1, 0.1, 0.01)), decimals))

    claimed = [f"{name} = {written(tensor)}" for name, tensor in values.items() if rng.random() < 0.7]
    return "\n".join(["[claimed]", *claimed]) + "\n"
