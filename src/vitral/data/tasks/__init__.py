"""Generated tasks: random sequences of a known kind as a text that any command can train on."""

from typing import Annotated

from pydantic import Field

from vitral.data.tasks.markov import MarkovChains
from vitral.data.tasks.recall import KeyValueRecall
from vitral.data.tasks.repeats import RepeatedStrings
from vitral.data.tasks.task import Task, task_text

TaskConfig = Annotated[RepeatedStrings | MarkovChains | KeyValueRecall, Field(discriminator="name")]
TASKS = ("repeats", "markov", "recall")
"""The names of the tasks."""

__all__ = ["TASKS", "KeyValueRecall", "MarkovChains", "RepeatedStrings", "Task", "TaskConfig", "task_text"]
