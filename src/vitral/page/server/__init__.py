"""The page of a run over a small server on this machine: `vitral open`. Only `runs` imports PyTorch."""
