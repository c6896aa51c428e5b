"""Runs on disk: configuration and identity, run folders, checkpoints, verification, loading, locking, summaries."""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily

if TYPE_CHECKING:
    from vitral.runs.checkpoint import Checkpoint
    from vitral.runs.config import RunConfig, TrainingConfig
    from vitral.runs.folder import RunFolder, is_run, refuse_existing
    from vitral.runs.identity import Decision, Identity, Parent
    from vitral.runs.loading import LoadedRun, load_run, trajectory
    from vitral.runs.sealed import SealedRun, enter
    from vitral.runs.summary import FoundRuns, RunSummary, find_runs, summarize_run
    from vitral.runs.verification import Finding, verify

__all__ = [
    "Checkpoint",
    "Decision",
    "Finding",
    "FoundRuns",
    "Identity",
    "LoadedRun",
    "Parent",
    "RunConfig",
    "RunFolder",
    "RunSummary",
    "SealedRun",
    "TrainingConfig",
    "enter",
    "find_runs",
    "is_run",
    "load_run",
    "refuse_existing",
    "summarize_run",
    "trajectory",
    "verify",
]

__getattr__ = lazily(__name__)
