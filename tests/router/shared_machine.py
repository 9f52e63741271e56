"""Workers that share a machine, behind a dispatcher, on a virtual clock: what was foretold, and what came of it."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from headway.core.errors import ResourceExhaustedError
from headway.core.latency import LatencyModel
from headway.core.slo import Slo
from headway.core.step_work import StepWork
from headway.router.dispatcher import Dispatcher
from headway.router.lease import Lease, LeaseOutcome, Release
from headway.router.policies.registry import make_policy
from headway.router.prediction import predicted
from headway.router.queued_request import QueuedRequest
from tests.router.harness import make_plan
from tests.router.scripted import IDLE
from tests.router.stage import REQUEST

LIVE = LatencyModel(
    base_s=0.003, per_prefill_token_s=5e-5, per_prefill_pair_s=0.0, per_decode_s=2e-4, per_context_token_s=0.0
)
"""Steps of a worker that has the machine to itself."""
CATALOGUE = replace(LIVE.part(0.2), relative_error=0.5, origin="estimated")
PROMPT_TOKENS, OUTPUT_TOKENS = 45, 33
_WAY_S = 0.003
_REPORT_EVERY_S = 0.1
_NOISE = 0.1


@dataclass(slots=True, eq=False)
class _Sequence:
    queued: QueuedRequest
    lease: Lease
    num_left: int
    first_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Fates:
    """Of the requests of one trace, how many were foretold to keep their objective, and how many did."""

    num_foretold: int
    num_met: int
    num_refused: int


class SharedMachine:
    """Two workers whose steps take longer while the other computes too.

    Args:
        contention: the share by which they do.
        slowness: what all steps are multiplied by, at a time.
    """

    def __init__(self, *, contention: float, seed: int, slowness: Callable[[float], float]) -> None:
        self.now_s = 0.0
        self.rng = random.Random(seed)
        self._contention, self._slowness = contention, slowness
        self._dispatcher = Dispatcher(
            policy=make_policy("balanced"), instance_id="test", clock=lambda: self.now_s, max_group_sequences=512
        )
        self._work = {name: StepWork() for name in ("worker-0", "worker-1")}
        self._running: dict[str, list[_Sequence]] = {name: [] for name in self._work}
        self._new: dict[str, list[_Sequence]] = {name: [] for name in self._work}
        self._busy: set[str] = set()
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._waiting: list[QueuedRequest] = []
        self._ended: list[tuple[Slo, Lease | None, Release | None]] = []
        self._num = 0
        self._report()
        self._dispatcher.fleet.apply(make_plan(*self._work, latency=CATALOGUE))

    def run(self, until_s: float) -> None:
        while self._due and self._due[0][0] <= until_s:
            self.now_s, _, do, arguments = heapq.heappop(self._due)
            do(*arguments)
        self.now_s = until_s

    def arrive(self, slo: Slo, *, num_tokens: int = OUTPUT_TOKENS) -> None:
        self._num += 1
        request = replace(
            REQUEST,
            request_id=str(self._num),
            num_prompt_tokens=PROMPT_TOKENS,
            max_output_tokens=num_tokens,
            slo=slo,
        )
        self._waiting.append(QueuedRequest(request=request, arrived_s=self.now_s, failed_at_s=0.0))
        self._serve()

    def alone_s(self) -> tuple[float, float]:
        """What an answer of one token takes by itself, and a usual one."""
        taken: dict[int, list[float]] = {1: [], OUTPUT_TOKENS: []}
        for num_tokens, times_s in taken.items():
            for _ in range(5):
                begun_s, num_ended = self.now_s, len(self._ended)
                self.arrive(Slo(), num_tokens=num_tokens)
                while len(self._ended) == num_ended:
                    self.run(self.now_s + 0.001)
                times_s.append(self.now_s - begun_s)
        return median(taken[1]), median(taken[OUTPUT_TOKENS])

    def trace(self, slo: Slo, *, num_requests: int, mean_gap_s: float, measured: Slo | None = None) -> Fates:
        """Requests at Poisson intervals.

        Args:
            measured: what counts as met; None: their own objective.
        """
        begun = len(self._ended)
        for _ in range(num_requests):
            self.arrive(slo)
            self.run(self.now_s + self.rng.expovariate(1 / mean_gap_s))
        self.run(self.now_s + 30.0)
        ended = self._ended[begun:]
        assert len(ended) == num_requests
        met = slo if measured is None else measured
        kept = [(lease, release) for _, lease, release in ended if lease is not None and release is not None]
        return Fates(
            num_foretold=sum(bool(predicted(lease, release)) for lease, release in kept),
            num_met=sum(met.is_met(ttft_s=each.ttft_s, tpot_s=each.tpot_s, e2e_s=each.e2e_s) for _, each in kept),
            num_refused=num_requests - len(kept),
        )

    def _after(self, delay_s: float, do: Callable[..., None], *arguments: Any) -> None:
        self._num += 1
        heapq.heappush(self._due, (self.now_s + delay_s, self._num, do, arguments))

    def _report(self) -> None:
        for name, work in self._work.items():
            group = self._dispatcher.fleet.join(name, endpoint=f"host:{name}", group_id="")
            report = replace(
                IDLE,
                num_running=len(self._running[name]),
                num_waiting=len(self._new[name]),
                num_pending_prefill_tokens=PROMPT_TOKENS * len(self._new[name]),
                work=work,
            )
            self._dispatcher.fleet.update(group, [report], now_s=self.now_s)
        self._serve()
        self._after(_REPORT_EVERY_S, self._report)

    def _serve(self) -> None:
        self._waiting = [queued for queued in self._waiting if not self._place(queued)]

    def _place(self, queued: QueuedRequest) -> bool:
        """Whether it has a lease, or was refused."""
        slo = queued.request.slo
        try:
            found = self._dispatcher.place(queued)
        except ResourceExhaustedError:
            self._ended.append((slo, None, None))
            return True
        if isinstance(found, Lease):
            self._after(_WAY_S, self._submit, _Sequence(queued, found, queued.request.max_output_tokens))
        elif self.now_s - queued.arrived_s >= slo.wait_s:
            self._ended.append((slo, None, None))
        else:
            return False
        return True

    def _submit(self, sequence: _Sequence) -> None:
        name = sequence.lease.worker_id
        self._new[name].append(sequence)
        if name not in self._busy:
            self._begin_step(name)

    def _begin_step(self, name: str) -> None:
        self._busy.discard(name)
        new, self._new[name] = self._new[name], []
        if not new and not self._running[name]:
            return
        num_decodes, num_tokens = len(self._running[name]), PROMPT_TOKENS * len(new)
        duration_s = LIVE.step_s(prefill_tokens=num_tokens, num_decodes=num_decodes, context_tokens=0)
        duration_s *= (1 + self._contention * len(self._busy)) * self._slowness(self.now_s)
        duration_s *= max(0.5, self.rng.gauss(1.0, _NOISE))
        self._busy.add(name)
        step = StepWork(num_steps=1, num_prefill_tokens=num_tokens, num_decodes=num_decodes, duration_s=duration_s)
        self._after(duration_s, self._end_step, name, new, step)

    def _end_step(self, name: str, new: list[_Sequence], step: StepWork) -> None:
        self._work[name] += step
        seen_s = self.now_s + _WAY_S
        for sequence in new:
            sequence.first_s = seen_s
            ttft_s = seen_s - sequence.queued.arrived_s
            self._dispatcher.note_first_token(sequence.lease.lease_id, ttft_s=ttft_s)
        everybody = [*self._running[name], *new]
        for sequence in everybody:
            sequence.num_left -= 1
        self._running[name] = [each for each in everybody if each.num_left]
        for sequence in everybody:
            if not sequence.num_left:
                self._end(sequence, seen_s=seen_s)
        self._serve()
        self._begin_step(name)

    def _end(self, sequence: _Sequence, *, seen_s: float) -> None:
        queued, num_tokens = sequence.queued, sequence.queued.request.max_output_tokens
        release = Release(
            lease_id=sequence.lease.lease_id,
            outcome=LeaseOutcome.COMPLETE,
            ttft_s=sequence.first_s - queued.arrived_s,
            tpot_s=(seen_s - sequence.first_s) / (num_tokens - 1) if num_tokens > 1 else None,
            e2e_s=seen_s - queued.arrived_s,
            num_output_tokens=num_tokens,
        )
        self._dispatcher.release(release)
        self._ended.append((queued.request.slo, sequence.lease, release))
