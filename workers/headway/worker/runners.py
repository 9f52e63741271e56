"""The runner protocols of a worker: what it needs of whatever computes a loaded model, or emulates it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from headway.core.cache_sharding import ShardWork
from headway.core.model import ModelSpec
from headway.core.request import Guide
from headway.encoder.in_flight_batch import EncoderRunner
from headway.engine.batch import Runner
from headway.runner.parallel.collective_counters import CollectiveCounters


class BlockStore(Protocol):
    """A group's KV blocks, each as one piece of `block_bytes`; with no batch in flight."""

    @property
    def block_bytes(self) -> int: ...

    def read(self, places: Sequence[tuple[int, bool]]) -> list[memoryview]:
        """The content of each; `places` are (block, whether of the host tier), one at least."""

    def write(self, places: Sequence[tuple[int, bool]], contents: Sequence[memoryview]) -> None:
        """Sets their content to what `read` gave, here or in another group."""


class Part(Protocol):
    """One rank's part of a model."""

    @property
    def weight_bytes(self) -> int: ...


class Measurable(Part, Protocol):
    """A runner whose steps can be timed: that of a leader or a lone worker."""

    def measure(self, *, prefill_tokens: int, num_decodes: int, context_tokens: int) -> float:
        """Seconds of one synthetic step."""


class Shared(Part, Protocol):
    """A rank's runner of a model that generates."""

    @property
    def shard_work(self) -> ShardWork: ...

    @property
    def traffic(self) -> CollectiveCounters: ...


class GeneratorRunner(Measurable, Shared, Runner, Protocol):
    """The runner of a model that generates, at the leader of its group or on a lone worker."""

    spec: ModelSpec

    @property
    def blocks(self) -> BlockStore: ...

    def prepare(self, guide: Guide) -> str:
        """Compiles what sequences of the guide need, in any thread; returns why it cannot be followed, empty if it
        can."""

    def close(self) -> None:
        """Finishes what is in flight and has the group's other ranks let the model go."""


class OnePassRunner(Measurable, EncoderRunner, Protocol):
    """The runner of an encoder, whose requests are answered in one pass."""

    @property
    def traffic(self) -> CollectiveCounters: ...

    def notify(self, on_change: Callable[[], None]) -> None:
        """Has it call `on_change`, in any thread, whenever a batch is due earlier than it was."""

    def close(self) -> None:
        """Has the group's other ranks let the model go. Call it when no thread uses the runner any more."""


class RankRunner(Shared, Protocol):
    """The runner of a rank that does not lead."""

    def follow(self) -> None:
        """Returns when the leader lets the model go; RunnerLostError where others are gone."""

    def end(self) -> None:
        """The worker wants the rank to end; `follow` returns at once if that is not for the leader to say."""
