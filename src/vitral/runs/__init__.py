"""Runs on disk: run folders, checkpoints, loading, locking."""

from vitral.runs.checkpoint import Checkpoint
from vitral.runs.folder import RunFolder, refuse_existing
from vitral.runs.loading import LoadedRun, load_run

__all__ = ["Checkpoint", "LoadedRun", "RunFolder", "load_run", "refuse_existing"]
