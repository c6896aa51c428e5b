"""The clock of a training session."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Seconds since the start, and tokens per second without the pauses.

    Attributes:
        pause: seconds of the last pause.
        stepped: Unix time after the last step, before any evaluation that follows it.
    """

    def __init__(self, tokens_per_step: int) -> None:
        """Start now; a step has so many tokens."""
        self._tokens, self._steps, self._began = tokens_per_step, 0, time.perf_counter()
        self._since, self.stepped = self._began, time.time()
        self.pause, self._pauses = 0.0, 0.0

    def count_step(self) -> None:
        """Count a step since the last call of `tokens_per_second`."""
        self._steps += 1

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began

    def stepping(self) -> float:
        """Seconds since the start without the pauses."""
        return self.seconds() - self._pauses

    def tokens_per_second(self) -> float:
        """The speed since the last call."""
        now = time.perf_counter()
        speed = self._steps * self._tokens / max(now - self._since, 1e-9)
        self._steps, self._since = 0, now
        return speed

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time inside the block (evaluating, writing) from the speed."""
        began, self.stepped = time.perf_counter(), time.time()
        yield
        self.pause = time.perf_counter() - began
        self._pauses += self.pause
        self._since += self.pause
