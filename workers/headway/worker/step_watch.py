"""Ends a worker whose engine does not come back from a step: it lives, renews its lease and computes nothing more.

Then it is as any worker that died: what ran there goes on elsewhere, and a request for which two have ended so is told
by the gateways, which put it in quarantine.
"""

import asyncio
import logging
from collections.abc import Callable

from headway.worker.replicas import LoadedReplica, Replicas

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0


class StepWatch:
    """Looks again and again whether a model is still in the step in which it was seen before. It counts looks and no
    seconds: a worker that stood still itself has had no time to compute.

    Args:
        replicas: of the models that the worker has loaded.
        on_stuck: ends the process; nothing else ends the step.
    """

    def __init__(
        self, replicas: Replicas, *, on_stuck: Callable[[], None], look_every_s: float = _LOOK_EVERY_S
    ) -> None:
        self._replicas = replicas
        self._on_stuck = on_stuck
        self._look_every_s = look_every_s
        self._seen: dict[str, tuple[int, int]] = {}  # by model, the step, and how often it was seen

    async def watch(self) -> None:
        """Runs until an engine is stuck."""
        while not any(self._is_stuck(replica) for replica in self._replicas):  # noqa: ASYNC110 - a thread's
            await asyncio.sleep(self._look_every_s)
        self._on_stuck()

    def _is_stuck(self, replica: LoadedReplica) -> bool:
        stepping, model = replica.stepping, replica.model
        if stepping is None or (step := stepping.running_step) == 0:
            self._seen.pop(model, None)
            return False
        before, num_looks = self._seen.get(model, (step, 0))
        num_looks = num_looks + 1 if step == before else 1
        self._seen[model] = step, num_looks
        timeout_s = replica.loaded.order.step_timeout_s
        if num_looks * self._look_every_s <= timeout_s:
            return False
        log.critical(
            "a step of %s has taken over %.3g s, and the worker ends; it was in\n%s", model, timeout_s, stepping.stack()
        )
        return True
