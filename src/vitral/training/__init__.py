"""Training: optimizers, schedules, the loop, starting and resuming."""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily
from vitral.runs.config import RunConfig
from vitral.training.events import Callback, Event, all_of, silent

if TYPE_CHECKING:
    from vitral.training.continuation import continue_run
    from vitral.training.resumption import resume
    from vitral.training.run import train

__getattr__ = lazily(__name__)
