"""Rotary positions in the configurations of transformers, old spellings and new."""

from collections.abc import Sequence
from typing import Any

from vitral.interop.foreign_settings import Settings
from vitral.model import ModelConfig

LLAMA3 = {
    "low_freq_factor": "low_frequency_factor",
    "high_freq_factor": "high_frequency_factor",
    "original_max_position_embeddings": "original_context_length",
}


def read_rotary(
    settings: Settings, *, base_key: str = "rope_theta", fraction_key: str | None = None, fraction: float = 1.0
) -> dict[str, Any]:
    """The table of `model.positions` for `rope_parameters`, or for the older keys.

    Args:
        settings: the configuration.
        base_key: the older key of the base.
        fraction_key: the older key of the share of a head that turns; None where it is always `fraction`.
        fraction: that share where none is given.

    Raises:
        UsageError: two keys contradict each other.
    """
    tables = [settings.inside(key) for key in ("rope_parameters", "rope_scaling") if settings.given(key)]
    bases = [*((table, "rope_theta") for table in tables), (settings, base_key)]
    shares = [*((table, "partial_rotary_factor") for table in tables), (settings, "partial_rotary_factor")]
    first_shares = [*shares[:-1], (settings, fraction_key)] if fraction_key else []
    result = {
        "name": "rotary",
        "base": _agreed(bases, [(settings, "rope_theta"), (settings, "rotary_emb_base")], 10_000.0),
        "fraction": _agreed(first_shares, [*shares, (settings, "rotary_pct")], fraction),
    }
    scalings = [_scaling(table) for table in tables]
    for table, scaling in zip(tables, scalings, strict=True):
        table.end()
        if scaling != scalings[0]:
            raise settings.contradiction("rope_scaling", scaling or "default", scalings[0] or "default")
    return result | ({"scaling": scalings[0]} if scalings and scalings[0] is not None else {})


Place = tuple[Settings, str]


def _agreed(places: Sequence[Place], others: Sequence[Place], default: float) -> float:
    """The number of the first of some keys that is given; the other spellings must say the same."""
    found = [(*place, place[0].real(place[1], default)) for place in [*places, *others] if place[0].given(place[1])]
    number = next((value for settings, key, value in found if (settings, key) in places), default)
    for settings, key, other in found:
        if other != number:
            raise settings.contradiction(key, other, number)
    return number


def _scaling(rope: Settings) -> dict[str, Any] | None:
    older = rope.take("type")
    name = rope.take("rope_type", "default" if older is None else older)
    if older not in (None, name):
        raise rope.contradiction("type", older, name)
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
