"""The pipeline of emulated devices that several models share."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from headway.core.pipeline import Pipeline

_AGAIN_S = 0.0005  # another model's thread is about to begin


class Clock(Protocol):
    def now_s(self) -> float: ...

    def sleep_until(self, due_s: float) -> None: ...


@dataclass(slots=True, eq=False)
class Queued:
    """A batch that is in line, or in the pipeline.

    Attributes:
        ready_s: since when it waits.
        stage_s: what it takes in each stage.
        due_s: when it leaves the last one; None as long as others may come before it.
    """

    ready_s: float
    stage_s: Sequence[float]
    due_s: float | None = None


class Line:
    """The pipeline of a group's devices, and the models that wait for it.

    Each model has a thread of its own. A one-pass engine has a name here, whatever object it likes: its next request
    holds a place in line, and becomes a batch when the first stage is free; which of these engines is next they know
    among themselves (`headway.encoder.group_line`). A model that generates comes with a batch that is made up. It
    enters the pipeline, behind all that is in it, as soon as no request is in line that came before.

    Attributes:
        clock: of all times.
        num_stages: of the pipeline.
    """

    def __init__(self, *, num_stages: int, clock: Clock) -> None:
        self.clock = clock
        self.num_stages = num_stages
        self._pipeline = Pipeline(num_stages=num_stages)
        self._guard = Lock()
        self._since_s: dict[object, float] = {}
        self._queued: deque[Queued] = deque()

    @property
    def free_s(self) -> float:
        """When the first stage can take another batch, in the clock's seconds."""
        return self._pipeline.free_s

    def wait(self, model: object, since_s: float) -> None:
        """Puts a one-pass engine's next request in line, waiting since `since_s`; infinity if it has none."""
        with self._guard:
            self._since_s[model] = since_s
            self._admit()

    def predict(self, ready_s: float, stage_s: Sequence[float]) -> float:
        """Returns when a batch would leave the last stage if it entered now, in the clock's seconds."""
        with self._guard:
            return self._pipeline.predict(ready_s, stage_s)

    def start(self, ready_s: float, stage_s: Sequence[float]) -> float:
        """The batch of a one-pass engine enters the first stage as soon as that is free; see `Pipeline.enter`. The
        engine then tells what it has next in line."""
        with self._guard:
            return self._pipeline.enter(ready_s, stage_s)

    def queue(self, ready_s: float, stage_s: Sequence[float]) -> Queued:
        """A batch of a model that generates, behind those that are queued."""
        with self._guard:
            queued = Queued(ready_s, stage_s)
            self._queued.append(queued)
            self._admit()
            return queued

    def sleep_until_due(self, queued: Queued) -> float:
        """Returns when a batch has left the pipeline, and the time at which it was to."""
        while queued.due_s is None:
            self.clock.sleep_until(max(self._pipeline.free_s, self.clock.now_s()) + _AGAIN_S)
        self.clock.sleep_until(queued.due_s)
        return queued.due_s

    def leave(self, model: object) -> None:
        """The model has nothing in line any more."""
        with self._guard:
            self._since_s.pop(model, None)
            self._admit()

    def _admit(self) -> None:
        oldest_s = min(self._since_s.values(), default=math.inf)
        while self._queued and self._queued[0].ready_s <= oldest_s:
            queued = self._queued.popleft()
            queued.due_s = self._pipeline.enter(queued.ready_s, queued.stage_s)
