"""Runs on disk: configuration and identity, run folders, checkpoints, verification, loading, locking, summaries."""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily

if TYPE_CHECKING:
    from vitral.runs.checkpoint import Checkpoint
    from vitral.runs.config import RunConfig, TrainingConfig
    from vitral.runs.folder import RunFolder, is_run, refuse_existing
    from vitral.runs.identity import Identity, Parent
    from vitral.runs.loading import LoadedRun, load_run, trajectory
    from vitral.runs.sealed import SealedRun, enter, verify
    from vitral.runs.summary import RunSummary, runs_below, summarize_run

__getattr__ = lazily(__name__)
