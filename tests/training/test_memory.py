"""The memory asked for before training is never more than training really needs, and not much less."""

import weakref
from itertools import cycle, product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vitral.core import machine
from vitral.core.devices import precision, weight_dtype
from vitral.core.errors import UsageError
from vitral.model import Transformer, count_parameters, next_token_loss
from vitral.training import RunConfig, costs
from vitral.training.costs import require_training_memory, training_bytes
from vitral.training.optimizers import optimizer_of
from vitral.training.summing import StepSum

VOCAB = 97
MODELS: list[dict[str, Any]] = [
    {},
    {"norm": "post", "final_norm": True, "feed_forward": "swiglu"},
    {"norm_type": "rmsnorm", "feed_forward": "squared_relu", "num_kv_heads": 1},
    {"feed_forward": "none", "attention": {"scale": "learned"}},
    {"attention": "none"},
    {"attention": "none", "recurrence": "lstm"},
    {"attention": "none", "recurrence": "lstm", "norm": "none", "feed_forward": "none", "residual": False},
    {"attention": {"mask": {"name": "prefix", "length": 40}}, "positions": "rotary"},
    {"positions": "alibi", "residual": False, "tie_head": True},
    {"positions": "relative", "dropout": 0.1},
    {"dropout": {"weights": 0.1}},
    {"norm": "none", "residual": False, "bias": False, "feed_forward": "relu"},
    {"feed_forward": "gelu_tanh", "parallel": True, "d_head": 20, "bias": {"qkv": False, "head": True}},
    {"norm": "none", "parallel": True, "positions": {"name": "rotary", "fraction": 0.5, "pairing": "interleaved"}},
    {"attention": {"mask": ["causal", {"name": "window", "size": 8}]}, "final_norm": False},
    {"norm": "post", "embedding_norm": True, "head_transform": True, "tie_head": True, "bias": {"head": True}},
]


def configured(model: dict[str, Any], **training: Any) -> RunConfig:
    sizes = {"context_length": 64, "d_model": 48, "num_layers": 2, "num_heads": 4}
    return RunConfig.parse({"model": sizes | model, "training": {"batch_size": 4, "device": "cpu"} | training})


class Living(TorchDispatchMode):
    """Counts the bytes of all tensors that operations return while they live; `most` is the peak."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self.now = self.most = before
        self.known = set[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {
            tensor.untyped_storage()._cdata for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)
        }
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in self.known | given:
                self._begin(tensor.untyped_storage())
        return result

    def _begin(self, storage: torch.UntypedStorage) -> None:
        address, size = storage._cdata, storage.nbytes()
        self.known.add(address)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._end, address, size)

    def _end(self, address: int, size: int) -> None:
        self.known.discard(address)
        self.now -= size


def needed(config: RunConfig) -> int:
    """The peak of bytes in two real steps, temporary tensors included."""
    training = config.training
    model = Transformer(config.model, VOCAB).train().to(weight_dtype(training.dtype))
    optimizer = optimizer_of(model, training)
    window = torch.arange(training.batch_size * config.model.context_length).view(training.batch_size, -1) % VOCAB
    with Living(sum(parameter.nbytes for parameter in model.parameters())) as living:
        for _ in range(2):
            optimizer.zero_grad()
            summed = StepSum(list(model.parameters()), training)
            for _ in range(training.accumulation):
                with precision(torch.device("cpu"), training.dtype):
                    loss = next_token_loss(model(window), window, model.mask)
                loss.backward()
                summed.add(loss.detach())
            summed.total()
            optimizer.step()
    return living.most


@pytest.mark.parametrize(
    ("model", "dtype"),
    [*zip(MODELS, cycle(["float32"])), *product(MODELS[:6:5], ["bfloat16", "float64"])],
    ids=str,
)
def test_it_is_at_most_what_training_needs_and_not_much_less(model: dict[str, Any], dtype: str) -> None:
    config = configured(model, dtype=dtype)
    assert 0.75 < training_bytes(config, VOCAB) / needed(config) <= 1


def test_no_model_is_made_to_refuse_one(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured({"d_model": 2**20, "num_layers": 100, "context_length": 2**12})
    monkeypatch.setattr(Transformer, "__init__", lambda *given, **named: pytest.fail("a model was made"))
    monkeypatch.setattr(machine, "memory_limit", lambda: 10**12)
    with pytest.raises(UsageError) as refused:
        require_training_memory(config, VOCAB, "big.toml")
    assert str(refused.value).startswith("big.toml: ")
    assert "1,000.0 GB" in str(refused.value)


def test_a_gpu_is_asked_for_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine need only hold the weights, which are drawn there."""
    config = configured({}, device="cuda")
    monkeypatch.setattr(costs, "resolve_device", torch.device)
    weights, needed = 4 * count_parameters(config.model, VOCAB), training_bytes(config, VOCAB)
    there = SimpleNamespace(total_memory=needed)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: there)
    monkeypatch.setattr(machine, "memory_limit", lambda: weights)
    require_training_memory(config, VOCAB, "here")
    there.total_memory -= 1
    with pytest.raises(UsageError, match="GPU"):
        require_training_memory(config, VOCAB, "here")
    there.total_memory += 1
    monkeypatch.setattr(machine, "memory_limit", lambda: weights - 1)
    with pytest.raises(UsageError):
        require_training_memory(config, VOCAB, "here")
