"""Puts an encoder's layers on the backend that was asked for, or on the fastest: tried, compared and timed first."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch

from headway.backends.device import fault_of
from headway.backends.libraries import Libraries
from headway.core.backend import EAGER, Backend
from headway.core.backend_package import FLOAT32
from headway.core.backend_search import MAX_ERROR
from headway.core.served_backend import FASTEST, BackendTrial, ServedBackend, choose, serving_packages
from headway.models.encoder import Encoder, EncoderBatch, EncoderBody
from headway.runner.padded_body import PaddedBody

_LENGTHS = ((16,), (8, 12, 17, 25, 33, 41, 52, 60), (96, 140))
"""Of the sequences of each batch that is timed: one short text, several at once, and long ones."""
_NUM_ROUNDS = 5
"""Each with sequences of other lengths, as those of requests are: a library that compiles for each pays for it."""
_LEAST_GAIN = 0.05
"""A smaller gain is not worth a second library."""


@dataclass(slots=True)
class _Candidate:
    backend: str
    body: EncoderBody | None = None
    fault: str = ""
    durations_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def trial(self) -> BackendTrial:
        return BackendTrial(backend=self.backend, seconds=sum(map(median, self.durations_s.values())), fault=self.fault)


class EncoderPlacing:
    """The choice of what an encoder's layers run on.

    Args:
        encoder: as it is loaded.
        source: the same with weights that are torch's, from which libraries take theirs.
        make_batch: a batch of sequences of these lengths, ascending.
        max_length: of a sequence.
    """

    def __init__(
        self,
        encoder: Encoder,
        source: Encoder,
        *,
        make_batch: Callable[[Sequence[int]], EncoderBatch],
        max_length: int,
        num_threads: int,
        libraries: Libraries | None = None,
    ) -> None:
        self._encoder = encoder
        self._source = source
        self._make_batch = make_batch
        self._max_length = max_length
        self._num_threads = num_threads
        self._libraries = libraries or Libraries()

    @torch.inference_mode()
    def place(self, wanted: str) -> ServedBackend:
        """Has a backend run the layers, by its name or the fastest one. Where none can be taken they stay as they are,
        and the answer says why."""
        packages = [package for package in serving_packages() if wanted in (FASTEST, package.name)]
        backends = [each for package in packages for each in package.backends() if each.precision == FLOAT32]
        if not backends:
            return ServedBackend(backend=EAGER, reason=f"{wanted} is not installed at the worker")
        candidates = [_Candidate(EAGER, self._encoder.run_layers), *map(self._compiled, backends)]
        self._time([candidate for candidate in candidates if candidate.body is not None])
        trials = tuple(candidate.trial for candidate in candidates)
        chosen = candidates[trials.index(choose(trials, wanted=wanted, least_gain=_LEAST_GAIN))]
        if chosen is candidates[0] or chosen.body is None:
            is_slower = any(not trial.fault for trial in trials[1:])
            return ServedBackend(backend=EAGER, trials=trials, reason="nothing else is faster" if is_slower else "")
        self._encoder.run_on(chosen.body)
        return ServedBackend(backend=chosen.backend, trials=trials)

    def _compiled(self, backend: Backend) -> _Candidate:
        """A backend with the layers compiled and compared with eager; whatever it raises is its fault."""
        candidate = _Candidate(f"{backend} {backend.version}")
        example = self._batches(0)[-1]
        try:
            library = self._libraries.library(backend)
            hidden = self._source.embed(example)
            body = PaddedBody(library, self._source, (hidden, example), num_threads=self._num_threads)
            deviation = max(self._deviation(body, batch) for batch in self._batches(1))
        except Exception as error:  # noqa: BLE001 - whatever a library raises
            candidate.fault = f"fails: {fault_of(error)}"
            return candidate
        if deviation <= MAX_ERROR:
            candidate.body = body
        else:
            candidate.fault = f"is wrong by {deviation:.1e} of the largest value"
        return candidate

    def _deviation(self, body: EncoderBody, batch: EncoderBatch) -> float:
        """The largest difference from eager, as a share of the largest value; infinite where one is no number."""
        expected = self._encoder.run_layers(self._encoder.embed(batch), batch)
        given = body(self._encoder.embed(batch), batch)
        deviation = float(((given - expected).abs().max() / expected.abs().max()).item())
        return deviation if deviation == deviation else float("inf")

    def _time(self, candidates: Sequence[_Candidate]) -> None:
        """In turns, so that what else the machine does strikes all alike; each batch counts with the median of its
        rounds, as a library that compiles for each new length does so for requests too."""
        for candidate in candidates:
            self._run(candidate, self._batches(0)[0])
        for step in range(_NUM_ROUNDS):
            for number, batch in enumerate(self._batches(2 + step)):
                for candidate in candidates:
                    candidate.durations_s[number].append(self._run(candidate, batch))

    def _run(self, candidate: _Candidate, batch: EncoderBatch) -> float:
        assert candidate.body is not None, "a fault is not timed"
        hidden = self._encoder.embed(batch)
        started_s = time.perf_counter()
        candidate.body(hidden, batch)
        return time.perf_counter() - started_s

    def _batches(self, step: int) -> list[EncoderBatch]:
        return [self._make_batch(list(lengths)) for lengths in _lengths(self._max_length, step)]


def _lengths(max_length: int, step: int) -> Iterator[Sequence[int]]:
    """The lengths of the batches, `step` tokens longer as far as the model takes it."""
    for lengths in _LENGTHS:
        yield [min(length + step, max_length) for length in lengths]
