"""The real library opens what is exported, and what it writes is imported: logits, text, tokens."""

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign import OF_FORM, difference, needs_transformers, of_form, run_of
from variants import TOKENIZER, VARIANTS, made

from vitral.core.errors import UsageError
from vitral.data import Tokenizer, bpe_tokenizer, byte_tokenizer, char_tokenizer, declaring
from vitral.interop import all_forms, export_run, import_model
from vitral.interop.tokenizer_json import read_tokenizer, tokenizer_files
from vitral.runs import load_run

pytestmark = [pytest.mark.merge, needs_transformers, pytest.mark.usefixtures("quiet")]


@pytest.mark.parametrize("name", OF_FORM)
def test_an_export_is_proved_and_what_the_library_writes_again_is_the_same_run(name: str, tmp_path: Path) -> None:
    transformers = importlib.import_module("transformers")

    model = of_form(name)
    made_export = export_run(run_of(model, tmp_path / "run"), tmp_path / "out", to=name)
    assert made_export.proof is not None
    assert made_export.proof.relative_difference < 1e-5
    assert made_export.proof.equal_text
    assert json.loads((tmp_path / "out" / "PROOF.json").read_text())["equal_greedy_text"] is True
    auto = transformers.AutoModelForMaskedLM if name == "bert" else transformers.AutoModelForCausalLM
    theirs: Any = auto.from_pretrained(tmp_path / "out", dtype="auto").eval()
    assert type(theirs).__name__ == all_forms()[name].architecture
    tokens = torch.arange(14)[None] * 7 % 256
    with torch.inference_mode():
        if name != "bert":  # generation ends at the context
            assert theirs.generate(tokens[:, :5], do_sample=False, pad_token_id=0).shape[1] <= 16
        theirs.save_pretrained(tmp_path / "again", safe_serialization=True)
        expected = theirs(tokens).logits
    tokenizer = tmp_path / "out" / "tokenizer.json"
    again = load_run(import_model(tmp_path / "again", tmp_path / "back", tokenizer=tokenizer).path)
    with torch.inference_mode():
        found = again.model(tokens)
    assert difference(found, expected) < 1e-5
    state = model.state_dict()
    assert all(tensor.equal(state[key]) for key, tensor in again.model.state_dict().items())


# A bidirectional model cannot be a run of its own, only a masked one.
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "bidirectional"])
def test_every_variant_that_a_form_says_has_the_same_logits_in_the_library(variant: str, tmp_path: Path) -> None:
    run = run_of(made(variant), tmp_path / "run", TOKENIZER)
    refused, reason = 0, ""
    for name in all_forms():
        try:
            proof = export_run(run, tmp_path / name, to=name).proof
        except UsageError as error:
            proof, reason = None, str(error)
        if proof is None:
            assert not reason.startswith("proof")
            assert not (tmp_path / name).exists()
            refused += 1
            continue
        assert proof.relative_difference < 1e-5
    assert refused == len(all_forms()) - len(list(tmp_path.iterdir())) + 1


TEXT = "  two  spaces , and ' s don't \n\n\n end .\t<PAD> <|endoftext|> x  é"
TOKENIZERS: dict[str, Tokenizer] = {
    "char": char_tokenizer("".join(sorted(set(TEXT)))),
    "byte": byte_tokenizer(),
    "bpe": bpe_tokenizer(((116, 104), (256, 101), (32, 32), (101, 110))),
}


@pytest.mark.parametrize("declares", [False, True])
@pytest.mark.parametrize(("kind", "alone"), [("char", True), ("byte", False), ("bpe", True)])
def test_a_tokenizer_has_equal_ids_in_the_library(kind: str, declares: bool, alone: bool, tmp_path: Path) -> None:
    transformers = importlib.import_module("transformers")

    tokenizer = base = TOKENIZERS[kind]
    if declares:  # inside and after
        tokenizer = declaring(base, {"<|endoftext|>": 3, "  ": base.vocab_size + 1})
    for name, content in tokenizer_files(tokenizer, 32).items():
        (tmp_path / name).write_bytes(content)
    if not alone:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": tokenizer.vocab_size}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer.encode(TEXT).tolist()
    assert theirs(TEXT).input_ids == ids
    assert theirs.decode(ids) == TEXT
    assert len(theirs) == tokenizer.vocab_size
    back, _files = read_tokenizer(tmp_path, tokenizer.vocab_size, {})
    assert back == tokenizer
    assert np.array_equal(back.encode(TEXT), ids)
