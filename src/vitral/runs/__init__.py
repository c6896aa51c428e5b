"""Runs on disk: their configuration and identity, run folders, checkpoints, the gate, loading, locking."""

from vitral.runs.checkpoint import Checkpoint
from vitral.runs.config import RunConfig, TrainingConfig
from vitral.runs.folder import RunFolder, is_run, refuse_existing
from vitral.runs.gate import SealedRun, enter
from vitral.runs.identity import Decision, Identity, Parent
from vitral.runs.loading import LoadedRun, load_run

__all__ = [
    "Checkpoint",
    "Decision",
    "Identity",
    "LoadedRun",
    "Parent",
    "RunConfig",
    "RunFolder",
    "SealedRun",
    "TrainingConfig",
    "enter",
    "is_run",
    "load_run",
    "refuse_existing",
]
