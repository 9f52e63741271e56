"""Serves timed requests with one engine: they are submitted at their times, and the engine steps while it has work."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.engine.clock import Clock
from benchmarks.serve.workload import Request
from headway.core.request import GenerationRequest, SamplingParams
from headway.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Served:
    """A request that has its answer, and when that was over."""

    request: Request
    finished_s: float

    @property
    def normalised_latency_s(self) -> float:
        """Seconds from arrival to the last token, divided by the number of output tokens."""
        return (self.finished_s - self.request.arrival_s) / self.request.num_output_tokens


def serve(engine: Engine, requests: Iterable[Request], *, clock: Clock) -> list[Served]:
    """Answers all requests, whose arrivals count from the clock's zero; returns them as they end."""
    pending = deque(enumerate(requests))
    unfinished: dict[str, Request] = {}
    served: list[Served] = []
    while pending or engine.has_work:
        if not engine.has_work:
            clock.wait_until(pending[0][1].arrival_s)
        while pending and pending[0][1].arrival_s <= clock():
            index, request = pending.popleft()
            unfinished[str(index)] = request
            engine.submit_group(as_group(request, str(index)))
        ended = [output.request_id for output in engine.step() if output.finish_reason is not None]
        served += [Served(unfinished.pop(request_id), clock()) for request_id in ended]
    return served


def as_group(request: Request, name: str, sampling: SamplingParams | None = None) -> Sequence[GenerationRequest]:
    """Makes the engine's requests for one request: its `n` samples, of exactly the length that it asks for."""
    sampling = replace(sampling or SamplingParams(), max_tokens=request.num_output_tokens, ignore_eos=True)
    names = [name] if request.n == 1 else [f"{name}-{index}" for index in range(request.n)]
    return [
        GenerationRequest(
            request_id=request_id,
            model="bench",
            prompt_token_ids=request.prompt_token_ids,
            sampling=replace(sampling, seed=seed),
        )
        for seed, request_id in enumerate(names)
    ]


def run_at_full_load(engine: Engine, *, num_sequences: int, on_steady: Callable[[], None]) -> None:
    """Steps through a full queue until nobody waits any more.

    At first all sequences are young. `on_steady` is called when a third of them have ended, so that others of every
    age are there: what was observed before can be forgotten.
    """
    num_ended = 0
    while engine.stats().num_waiting:
        was_young = 3 * num_ended < num_sequences
        num_ended += sum(output.finish_reason is not None for output in engine.step())
        if was_young and 3 * num_ended >= num_sequences:
            on_steady()
