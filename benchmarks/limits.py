"""Physical limits of the machine: bare matrix products of a model's shapes, and reading its weights once."""

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.shapes import Shape
from vitral.model.native.build import compiler

PRODUCTS = "bare matrix products"
BANDWIDTH = "reading the weights, one core"
BYTES = 4
WIDTH = 64
READER = Path(__file__).with_name("read.c")


@dataclass(frozen=True)
class Product:
    """A matrix product [batch, rows, inner] · [batch, inner, columns].

    Attributes:
        batch: products side by side.
        rows: of the first matrix.
        inner: the axis that is summed over.
        columns: of the second matrix.
    """

    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """A multiplication and an addition are two operations."""
        return 2 * self.batch * self.rows * self.inner * self.columns

    def backward(self) -> "tuple[Product, Product]":
        """The products of the two gradients: of the first matrix, and of the second."""
        return (
            Product(self.batch, self.rows, self.columns, self.inner),
            Product(self.batch, self.inner, self.rows, self.columns),
        )


def forward_products(shape: Shape) -> list[Product]:
    """Every product of a forward pass over a batch of full windows.

    Attention is the whole square, as the textbook multiplies it; a causal kernel that skips half of it needs less.
    """
    tokens, d, d_head = shape.batch * shape.context, shape.d_model, shape.d_model // shape.heads
    squares = shape.batch * shape.heads
    block = [
        Product(1, tokens, d, 3 * d),
        Product(squares, shape.context, d_head, shape.context),
        Product(squares, shape.context, shape.context, d_head),
        Product(1, tokens, d, d),
        Product(1, tokens, d, 4 * d),
        Product(1, tokens, 4 * d, d),
    ]
    return [*block * shape.layers, Product(1, tokens, d, shape.vocab)]


def training_products(shape: Shape) -> list[Product]:
    """Every product of a training step: forward, and both gradients of each."""
    forward = forward_products(shape)
    return [*forward, *(gradient for product in reversed(forward) for gradient in product.backward())]


def multiply(products: list[Product]) -> Callable[[], None]:
    """An action that computes these products, each with its own matrices, into preallocated memory."""
    work = [_operands(product) for product in products]

    def run() -> None:
        for first, second, out in work:
            if out.dim() == 2:
                torch.mm(first, second, out=out)
            else:
                torch.bmm(first, second, out=out)

    return run


def _operands(product: Product) -> tuple[Tensor, Tensor, Tensor]:
    """Two matrices and memory for their product; a single product is two-dimensional, as in a linear layer.

    A weight of a linear layer lies [out, in] and is multiplied transposed; BLAS takes either at the same speed.
    """
    lead = () if product.batch == 1 else (product.batch,)
    return (
        torch.randn(*lead, product.rows, product.inner),
        torch.randn(*lead, product.inner, product.columns),
        torch.empty(*lead, product.rows, product.columns),
    )


def weights_read(shape: Shape) -> int:
    """Bytes of weights read per generated token: every matrix once, and one row of each embedding."""
    block = 12 * shape.d_model**2 + 13 * shape.d_model
    return BYTES * (shape.layers * block + shape.vocab * shape.d_model + 4 * shape.d_model)


def reading(num_bytes: int) -> Callable[[], object]:
    """An action that reads a buffer of this size once, on one core.

    A small buffer stays in a cache, as a small model's weights do, and is read several times as fast as a large one.
    The reader is compiled, since a call of PyTorch costs a fifth of the time; without a compiler it is `torch.mv`.
    """
    buffer = torch.ones(num_bytes // BYTES // WIDTH, WIDTH)
    library = _compiled_reader()
    if library is not None:
        where, count = ctypes.c_void_p(buffer.data_ptr()), ctypes.c_int64(buffer.numel())
        return lambda: (library.benchmark_read(where, count), buffer)
    vector, out = torch.ones(WIDTH), torch.empty(len(buffer))
    return lambda: torch.mv(buffer, vector, out=out)


@lru_cache
def _compiled_reader() -> ctypes.CDLL | None:
    """`read.c` for this processor; None where it cannot be compiled."""
    command = compiler()
    if command is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "read.so"
        words = [*command, "-O3", "-march=native", "-shared", "-fPIC", str(READER), "-o", str(made)]
        done = subprocess.run(words, capture_output=True, check=False)
        return ctypes.CDLL(str(made)) if done.returncode == 0 else None
