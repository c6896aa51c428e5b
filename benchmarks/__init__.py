"""Benchmarks: Vitral compared with its peers and with physical limits on the same model, data and machine."""
