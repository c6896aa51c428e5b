"""Rotary positions in the configurations of transformers, old spellings and new."""

from typing import Any

from vitral.interop.settings import Settings
from vitral.model import ModelConfig

LLAMA3 = {
    "low_freq_factor": "low_frequency_factor",
    "high_freq_factor": "high_frequency_factor",
    "original_max_position_embeddings": "original_context_length",
}


def read_rotary(settings: Settings, fraction: float = 1.0) -> dict[str, Any]:
    """The table of `model.positions` for `rope_parameters`, or for the older keys.

    Args:
        settings: the configuration.
        fraction: the share of a head that turns where none is given.
    """
    rope = settings.inside("rope_parameters")
    scaling = settings.inside("rope_scaling")
    base = settings.real("rope_theta", settings.real("rotary_emb_base", 10_000.0))
    fraction = settings.real("partial_rotary_factor", settings.real("rotary_pct", fraction))
    table = {
        "name": "rotary",
        "base": rope.real("rope_theta", base),
        "fraction": rope.real("partial_rotary_factor", fraction),
    }
    for one in (rope, scaling):
        scaled = _scaling(one)
        if scaled is not None:
            table["scaling"] = scaled
        one.end()
    return table


def _scaling(rope: Settings) -> dict[str, Any] | None:
    name = rope.take("rope_type", rope.take("type", "default"))
    rope.take("type")
    if name == "default":
        return None
    if name == "linear":
        return {"name": "linear", "factor": rope.real("factor", 1.0)}
    if name == "llama3":
        table: dict[str, Any] = {"name": "llama3", "factor": rope.real("factor", 8.0)}
        table |= {ours: rope.real(theirs, 1.0) for theirs, ours in LLAMA3.items() if ours != "original_context_length"}
        return table | {"original_context_length": rope.count("original_max_position_embeddings")}
    raise rope.refused("rope_type", name)


def write_rotary(config: ModelConfig) -> dict[str, Any]:
    """`rope_parameters`, and the older keys, which other readers know."""
    rotary = config.rotary
    if rotary is None:
        return {}
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": rotary.base}
    older: dict[str, Any] = {"rope_theta": rotary.base}
    if rotary.scaling is not None:
        plain = rotary.scaling.plain()
        theirs = {ours: name for name, ours in LLAMA3.items()}
        scaled = {theirs.get(key, key): value for key, value in plain.items() if key != "name"}
        rope |= {"rope_type": plain["name"], **scaled}
        older["rope_scaling"] = {"rope_type": plain["name"], **scaled}
    if rotary.fraction != 1:
        rope["partial_rotary_factor"] = older["partial_rotary_factor"] = rotary.fraction
    return {**older, "rope_parameters": rope}
