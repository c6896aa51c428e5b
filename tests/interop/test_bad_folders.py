"""Folders that are damaged, lie or are of another kind: one line, and nothing is left behind."""

import json
import pickle
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from foreign import hub_of, of_form, write_source

from vitral.core.errors import UsageError
from vitral.interop import export_run, import_model
from vitral.interop.foreign import MOST_TENSORS
from vitral.runs import load_run

WEIGHTS = "model.safetensors"


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def truncate(folder: Path) -> None:
    raw = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(raw[: len(raw) // 2])


def lie(folder: Path) -> None:
    """A header that promises more than the file has."""
    raw = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", 1 << 40) + raw[8:])


def unpickle(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(pickle.dumps({"a": 1}))


def only_pickle(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


def tensors(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    held = safetensors.torch.load_file(folder / WEIGHTS)
    change(held)
    safetensors.torch.save_file(held, folder / WEIGHTS)


FIRST = "transformer.h.0.ln_1.weight"
DAMAGES: dict[str, Callable[[Path], Any]] = {
    "truncated": truncate,
    "lying header": lie,
    "a pickle under another name": unpickle,
    "only a pickle": only_pickle,
    "no weights": lambda folder: (folder / WEIGHTS).unlink(),
    "a tensor missing": lambda folder: tensors(folder, lambda held: held.pop(FIRST)),
    "a tensor too many": lambda folder: tensors(folder, lambda held: held.update(extra=torch.ones(2))),
    "a wrong shape": lambda folder: tensors(folder, lambda held: held.update({FIRST: torch.ones(3)})),
    "not finite": lambda folder: tensors(folder, lambda held: held[FIRST].fill_(torch.nan)),
    "another head than the embedding": lambda folder: tensors(
        folder, lambda held: held.update({"lm_head.weight": held["transformer.wte.weight"] + 1})
    ),
    "no configuration": lambda folder: (folder / "config.json").unlink(),
    "an unknown type": lambda folder: change_config(folder, model_type="albert"),
    "an unknown key": lambda folder: change_config(folder, secret_scale=2.0),
    "more rows": lambda folder: change_config(folder, vocab_size=300),
    "an enormous width": lambda folder: change_config(folder, n_embd=2**23),
    "quantised": lambda folder: change_config(folder, quantization_config={"bits": 4}),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "a broken tokenizer": lambda folder: (folder / "tokenizer.json").write_text('{"model": 3}'),
    "a tokenizer of more tokens": lambda folder: (folder / "tokenizer.json").write_text(
        json.dumps(
            {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 900}, "unk_token": "a"}}
            | dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
            | {"added_tokens": []}
        )
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_in_one_line_and_leaves_nothing(damage: str, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "runs" / "run"
    write_source(source, "gpt2", of_form("gpt2"))
    DAMAGES[damage](source)
    with pytest.raises(UsageError):
        import_model(source, out)
    assert not out.exists()
    assert not out.parent.exists() or not list(out.parent.iterdir())


def test_more_tensors_than_a_model_has_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(tmp_path / "source", "gpt2", of_form("gpt2"))
    one = {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}
    header = json.dumps({str(number): one for number in range(MOST_TENSORS + 1)}).encode()
    (tmp_path / "source" / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))

    def never(_raw: bytes) -> None:
        raise AssertionError("they were read")

    monkeypatch.setattr(safetensors.torch, "load", never)
    with pytest.raises(UsageError, match="65,536"):
        import_model(tmp_path / "source", tmp_path / "run")


@pytest.mark.parametrize("source", ["nowhere", "hf:", "hf:a/b/c", "hf:/name"])
def test_a_path_that_is_none_is_refused(source: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        import_model(source, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def sharded(folder: Path) -> dict[str, str]:
    """Split the weights into two files with an index."""
    held = safetensors.torch.load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = sorted(held)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, some in parts.items():
        safetensors.torch.save_file({name: held[name] for name in some}, folder / file)
    listed = {name: file for file, some in parts.items() for name in some}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": listed}))
    return listed


def as_on_the_hub(folder: Path) -> None:
    """Names without the prefix, and a constant."""

    def change(held: dict[str, Any]) -> None:
        for name in list(held):
            held[name.removeprefix("transformer.")] = held.pop(name)
        held["h.0.attn.bias"] = torch.ones(1, 1, 16, 16)

    tensors(folder, change)


@pytest.mark.parametrize("written", [sharded, as_on_the_hub])
def test_weights_in_shards_or_under_other_names_are_understood(written: Callable[[Path], Any], tmp_path: Path) -> None:
    model = of_form("gpt2")
    write_source(tmp_path / "source", "gpt2", model)
    written(tmp_path / "source")
    found = load_run(import_model(tmp_path / "source", tmp_path / "run").path).model.state_dict()
    assert all(found[name].equal(tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("wrong", ["moved", "missing", "outside"])
def test_an_index_that_lies_is_refused(wrong: str, tmp_path: Path) -> None:
    write_source(tmp_path / "source", "gpt2", of_form("gpt2"))
    listed = sharded(tmp_path / "source")
    name = min(listed)
    listed |= {name: {"moved": "model-2.safetensors", "outside": "../model-1.safetensors"}.get(wrong, listed[name])}
    (tmp_path / "source" / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": listed}))
    if wrong == "missing":
        (tmp_path / "source" / "model-2.safetensors").unlink()
    with pytest.raises(UsageError):
        import_model(tmp_path / "source", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_of_the_hub_is_read_at_a_revision_that_the_run_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(tmp_path / "source", "gpt2", of_form("gpt2"))
    hub = hub_of(tmp_path / "source")
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    folder = import_model("hf:someone/something@refs/pr/1", tmp_path / "run")
    hub.model_info.assert_called_with("someone/something", revision="refs/pr/1")
    ((name,), asked) = hub.snapshot_download.call_args
    assert (name, asked["revision"]) == ("someone/something", "0123456789" * 4)
    assert not any(pattern.endswith((".py", ".bin", "*")) for pattern in asked["allow_patterns"])
    origin = load_run(folder.path).sealed.imported
    assert origin is not None
    assert (origin["hub"], origin["revision"]) == ("someone/something", "0123456789" * 4)


class ConnectTimeout(Exception):
    """As of the hub's HTTP library."""


@pytest.mark.parametrize("kind", [OSError, ConnectionError, ConnectTimeout])
def test_a_hub_that_fails_says_so_in_one_line(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = hub_of(tmp_path)
    hub.model_info.side_effect = kind("no network\nat all")
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(UsageError, match=r"no network\)?$") as refused:
        import_model("hf:someone/something", tmp_path / "run")
    assert ("cannot be reached" in str(refused.value)) == (kind is not OSError)


def test_a_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vitral.interop import exporting

    write_source(tmp_path / "source", "gpt2", of_form("gpt2"))
    run = load_run(import_model(tmp_path / "source", tmp_path / "run").path)

    def fail(*given: Any) -> str:
        raise UsageError("no card")

    monkeypatch.setattr(exporting, "card", fail)
    with pytest.raises(UsageError, match="no card"):
        export_run(run, tmp_path / "out" / "model", proof=False)
    assert not list((tmp_path / "out").iterdir())
    (tmp_path / "out" / "model").mkdir()
    with pytest.raises(UsageError, match="exists"):
        export_run(run, tmp_path / "out" / "model", proof=False)


@pytest.mark.parametrize("written", ['"temperature": NaN', r'"id2label": {"\udfff": 1}'])
def test_what_the_record_cannot_hold_is_refused(written: str, tmp_path: Path) -> None:
    """These keys do not enter the computation, but the run keeps them."""
    source = tmp_path / "source"
    write_source(source, "gpt2", of_form("gpt2"))
    path = source / "config.json"
    path.write_text(f"{path.read_text().rstrip().removesuffix('}')}, {written}}}")
    with pytest.raises(UsageError):
        import_model(source, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_queries_keys_and_values_of_wrong_sizes_are_refused_though_their_sum_is_right(tmp_path: Path) -> None:
    def moved(held: dict[str, Any]) -> None:
        key, value = ("model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight")
        held[key] = torch.cat([held[key], held[value][:3]])
        held[value] = held[value][3:].clone()

    write_source(tmp_path / "source", "llama", of_form("llama"))
    tensors(tmp_path / "source", moved)
    with pytest.raises(UsageError, match="k_proj"):
        import_model(tmp_path / "source", tmp_path / "run")


EMBEDDING, INTO, OUT = (f"model.decoder.{name}.weight" for name in ("embed_tokens", "project_in", "project_out"))


@pytest.mark.parametrize(
    ("named", "changes", "is_tied"),
    [
        (EMBEDDING, {EMBEDDING: None}, True),
        (INTO, {INTO: torch.ones(16, 9)}, True),
        ("lm_head.weight", {"lm_head.weight": torch.ones(256, 16)}, False),
    ],
)
def test_projections_that_do_not_fit_are_refused_with_folder_and_names(
    named: str, changes: dict[str, Any], is_tied: bool, tmp_path: Path
) -> None:
    def project(held: dict[str, Any]) -> None:
        held |= {EMBEDDING: torch.ones(256, 8), INTO: torch.ones(16, 8), OUT: torch.ones(8, 16), **changes}
        for name in [name for name, tensor in held.items() if tensor is None]:
            del held[name]

    source = tmp_path / "source"
    write_source(source, "opt", of_form("opt"), word_embed_proj_dim=8, tie_word_embeddings=is_tied)
    tensors(source, project)
    with pytest.raises(UsageError) as refused:
        import_model(source, tmp_path / "run")
    assert str(refused.value).startswith(f"{source}: ")
    assert named in str(refused.value)
