"""Benchmarks: Vitral compared with its peers and with physical limits on the same model, data and machine."""

import vitral  # noqa: F401, before PyTorch: it says how threads wait
