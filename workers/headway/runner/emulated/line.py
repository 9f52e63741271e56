"""The pipeline of emulated devices that several models share."""

import math
from collections.abc import Sequence
from threading import Lock
from typing import Protocol

from headway.core.pipeline import Pipeline

_AGAIN_S = 0.0005  # another model's thread is about to begin


class Clock(Protocol):
    def now_s(self) -> float: ...

    def sleep_until(self, due_s: float) -> None: ...


class Line:
    """The pipeline of a group's devices, and the models that wait for it.

    Each model has a thread of its own, and a name here: whatever object it likes. One-pass engines know among
    themselves who is next (`headway.encoder.group_line`); a model that generates lets those go first that came before.

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

    @property
    def free_s(self) -> float:
        """When the first stage takes another batch."""
        return self._pipeline.free_s

    def wait(self, model: object, since_s: float) -> None:
        """A model has a batch to start, which has been waiting since then; infinity for none."""
        with self._guard:
            self._since_s[model] = since_s

    def foresee(self, ready_s: float, stage_s: Sequence[float]) -> float:
        """When a batch would leave the last stage, if it entered now."""
        with self._guard:
            return self._pipeline.foresee(ready_s, stage_s)

    def start(self, model: object, ready_s: float, stage_s: Sequence[float]) -> float:
        """The model's batch enters the first stage as soon as that is free; see `Pipeline.enter`."""
        with self._guard:
            self._since_s.pop(model, None)
            return self._pipeline.enter(ready_s, stage_s)

    def start_in_turn(self, model: object, ready_s: float, stage_s: Sequence[float]) -> float:
        """The same once nobody waits who came before `ready_s`."""
        while (again_s := self._someone_is_before(ready_s)) is not None:
            self.clock.sleep_until(again_s)
        return self.start(model, ready_s, stage_s)

    def leave(self, model: object) -> None:
        """The model waits for nothing any more."""
        with self._guard:
            self._since_s.pop(model, None)

    def _someone_is_before(self, ready_s: float) -> float | None:
        """When to ask again; None for nobody."""
        with self._guard:
            if min(self._since_s.values(), default=math.inf) >= ready_s:
                return None
            return max(self._pipeline.free_s, self.clock.now_s()) + _AGAIN_S
