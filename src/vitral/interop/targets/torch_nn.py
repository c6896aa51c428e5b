"""PyTorch alone: embeddings, a `torch.nn.TransformerEncoder` under a causal mask, a head; the card has the module."""

import inspect
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional

from vitral.core.files import as_json
from vitral.interop.foreign import CONFIG, WEIGHTS
from vitral.interop.forms.torch_nn import NAME, TORCH_NN
from vitral.interop.proof import Draft, Opened
from vitral.interop.rewrites import Weighted
from vitral.interop.rules import exported
from vitral.interop.targets.transformers import config_of
from vitral.interop.tokenizer_json import ids_by, tokenizer_files
from vitral.runs import LoadedRun

_IMPORTS = """\
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
"""
_RUN = """\
model = EncoderModel(json.loads(Path("config.json").read_text())).eval()
model.load_state_dict(safetensors.torch.load_file("model.safetensors"))
ids = Tokenizer.from_file("tokenizer.json").encode("A prompt", add_special_tokens=False).ids
logits = model(torch.tensor([ids]))
"""


class EncoderModel(nn.Module):
    """Token and position embeddings, `torch.nn.TransformerEncoder`, head."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        """Build it from the content of `config.json`."""
        super().__init__()
        width, bias, epsilon = said["d_model"], said["bias"], said["layer_norm_eps"]
        named = said["activation"]
        layer = nn.TransformerEncoderLayer(
            width,
            said["nhead"],
            said["dim_feedforward"],
            dropout=0.0,
            activation=partial(functional.gelu, approximate="tanh") if named == "gelu_tanh" else named,
            layer_norm_eps=epsilon,
            batch_first=True,
            norm_first=said["norm_first"],
            bias=bias,
        )
        norm = nn.LayerNorm(width, eps=epsilon, bias=bias) if said["final_norm"] else None
        self.embedding = nn.Embedding(said["vocab_size"], width)
        self.positions = nn.Embedding(said["context_length"], width)
        self.encoder = nn.TransformerEncoder(layer, said["num_layers"], norm, enable_nested_tensor=False)
        self.head = nn.Linear(width, said["vocab_size"], bias=said["head_bias"])
        if said["tie_word_embeddings"]:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits of tokens [batch, time]; each position sees itself and those before it."""
        time = tokens.shape[1]
        later = torch.ones(time, time, dtype=torch.bool).triu(1)
        stream = self.embedding(tokens) + self.positions.weight[:time]
        return self.head(self.encoder(stream, mask=later))


def draft(run: LoadedRun) -> Draft:
    """A run as a state dict of torch's own modules.

    Raises:
        UsageError: they cannot express the model.
    """
    said = TORCH_NN.said(Weighted(run.model.config, run.model.state_dict()))
    weights = exported(TORCH_NN.rules(said.config), said.weights)
    if said.config.tie_head:  # the module has the matrix under both names
        weights[TORCH_NN.head] = weights[TORCH_NN.embedding].clone()
    files = {
        CONFIG: as_json(config_of(TORCH_NN, said, run)),
        WEIGHTS: safetensors.torch.save(weights, {"format": "pt"}),
        **tokenizer_files(run.tokenizer, said.config.context_length),
    }
    # The card has the very module that the proof opens.
    use = ("```python", *f"{_IMPORTS}\n\n{inspect.getsource(EncoderModel)}\n\n{_RUN}".splitlines(), "```")
    return Draft(NAME, files, "torch.nn", ("tokenizers", "safetensors"), opened, use)


def opened(folder: Path) -> Opened:
    """An export in PyTorch."""
    tensors = safetensors.torch.load_file(folder / WEIGHTS)
    model = EncoderModel(json.loads((folder / CONFIG).read_bytes())).eval().to(next(iter(tensors.values())).dtype)
    model.load_state_dict(tensors)
    return Opened(model, ids_by(folder))
