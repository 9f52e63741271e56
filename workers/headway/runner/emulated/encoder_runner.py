"""Takes as long for the one-pass engine's batches as a group of devices would."""

from collections.abc import Callable, Sequence

from headway.core.infer import InferSequence
from headway.core.latency import LatencyModel
from headway.core.model import ModelSpec
from headway.encoder.in_flight_batch import InFlightBatch
from headway.runner.emulated.line import Line
from headway.runner.emulated.model_runner import nothing_to_measure
from headway.runner.emulated.tokens import vector
from headway.runner.parallel.collective_counters import CollectiveCounters


class EmulatedEncoderRunner:
    """Implements `headway.worker.runners.OnePassRunner`. Its batches need no waiting: the engine sleeps until they are
    due, and hears of new requests meanwhile.

    Args:
        stage_latencies: of a batch, in each stage of the group's pipeline.
        line: the group's; its other models are in it too.
    """

    weight_bytes = 0  # it holds none

    def __init__(self, spec: ModelSpec, *, stage_latencies: Sequence[LatencyModel], line: Line) -> None:
        self.spec = spec
        self.traffic = CollectiveCounters()
        self._latencies = stage_latencies
        self._line = line

    @property
    def free_s(self) -> float:
        return self._line.free_s

    def notify(self, on_change: Callable[[], None]) -> None:
        """Does nothing: when an emulated batch is due is known from its start."""

    def wait(self, since_s: float) -> None:
        self._line.wait(self, since_s)

    def duration_s(self, sequences: Sequence[InferSequence]) -> float:
        return sum(self._stage_s(sequences))

    def predict(self, sequences: Sequence[InferSequence], *, ready_s: float) -> float:
        return self._line.predict(ready_s, self._stage_s(sequences))

    def start(self, sequences: Sequence[InferSequence], *, ready_s: float) -> InFlightBatch:
        due_s = self._line.start(ready_s, self._stage_s(sequences))
        return InFlightBatch(finish=lambda: self._vectors(sequences), due_s=due_s)

    def measure(self, **_load: int) -> float:
        """FailedPreconditionError: there is nothing to measure."""
        raise nothing_to_measure()

    def close(self) -> None:
        self._line.leave(self)

    def _vectors(self, sequences: Sequence[InferSequence]) -> list[bytes]:
        encoder, hidden_size = self.spec.encoder, self.spec.hidden_size
        assert encoder is not None, "the model is an encoder"
        return [vector(sequence, hidden_size=hidden_size, encoder=encoder) for sequence in sequences]

    def _stage_s(self, sequences: Sequence[InferSequence]) -> list[float]:
        lengths = [len(sequence.token_ids) for sequence in sequences]
        return [latency.one_pass_s(lengths) for latency in self._latencies]
