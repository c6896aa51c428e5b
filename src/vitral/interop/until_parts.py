"""Stands in for model parts that are on their way; gone when they are here."""

from types import SimpleNamespace
from typing import Any

from vitral.attention.masks import Mask
from vitral.model import ModelConfig

DEFAULTS: dict[str, Any] = {"norm_epsilon": 1e-5, "final_norm": None, "parallel": False}


class _Biases(SimpleNamespace):
    def model_dump(self) -> dict[str, bool]:
        return dict(vars(self))


def install() -> None:
    if "norm_epsilon" in ModelConfig.model_fields:
        return
    kind: Any = ModelConfig
    kind.epsilon = property(lambda self: 1e-5)
    kind.parallel = property(lambda self: False)
    kind.has_final_norm = property(lambda self: self.norm == "pre")
    kind.rotary = property(
        lambda self: SimpleNamespace(base=10000.0, fraction=1, pairing="halves", scaling=None)
        if self.positions == "rotary"
        else None
    )
    kind.biases = property(
        lambda self: _Biases(
            qkv=self.bias,
            output=self.bias,
            feed_forward=self.bias,
            norm=self.bias and self.norm_type == "layernorm",
            head=False,
        )
    )
    mask: Any = Mask
    mask.of = lambda self, layer: self


def plain(table: dict[str, Any]) -> dict[str, Any]:
    """Without the new keys where they have the values of today."""
    if "norm_epsilon" in ModelConfig.model_fields:
        return table
    made = dict(table)
    for key, value in DEFAULTS.items():
        if made.get(key, value) == value or (key == "final_norm" and made[key] == (made.get("norm", "pre") == "pre")):
            made.pop(key, None)
    if made.get("d_head") == made["d_model"] // made["num_heads"]:
        made.pop("d_head")
    if made.get("positions") == {"name": "rotary", "base": 10000.0, "fraction": 1.0}:
        made["positions"] = "rotary"
    bias = made.get("bias")
    if isinstance(bias, dict):
        wanted = {key: value for key, value in bias.items() if key != "head"}
        if made.get("norm_type") == "rmsnorm":
            wanted.pop("norm", None)
        if len(set(wanted.values())) == 1:
            made["bias"] = next(iter(wanted.values()))
    return made


install()
