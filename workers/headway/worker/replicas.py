"""The models that a worker has loaded, by name."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headway.core.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, UnavailableError
from headway.core.load import LoadReport
from headway.worker.engine_thread import EngineThread
from headway.worker.headway_engine import HeadwayEngine
from headway.worker.loaded import Loaded
from headway.worker.loaded_encoder import LoadedEncoder
from headway.worker.loaded_model import LoadedModel
from headway.worker.loaded_rank import LoadedRank
from headway.worker.streamed_engine import StreamedEngine
from headway.worker.usage import ids_of


@dataclass(slots=True)
class LoadedReplica:
    """A loaded model; `state` is 'ready', 'draining' or, on a rank that does not lead, 'rank'."""

    loaded: Loaded
    state: str

    @property
    def model(self) -> str:
        return self.loaded.order.model

    @property
    def idle_s(self) -> float:
        """Seconds since it last had something to do, 0 while it has."""
        return self.loaded.idle_s() if isinstance(self.loaded, LoadedRank) else self.loaded.sessions.idle_s()

    @property
    def stepping(self) -> EngineThread[Any] | StreamedEngine | None:
        """Who knows in which step its engine is; None where another rank leads."""
        if isinstance(self.loaded, LoadedEncoder):
            return self.loaded.thread
        engine = self.loaded.engine if isinstance(self.loaded, LoadedModel) else None
        if isinstance(engine, HeadwayEngine):
            return engine.thread
        return engine if isinstance(engine, StreamedEngine) else None

    def report(self) -> LoadReport:
        return self.loaded.report(self.state)


class Replicas:
    """The replicas of one worker, in the order in which they were loaded."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._replicas: dict[str, LoadedReplica] = {}

    def __iter__(self) -> Iterator[LoadedReplica]:
        return iter(tuple(self._replicas.values()))

    def __len__(self) -> int:
        return len(self._replicas)

    def add(self, replica: LoadedReplica) -> None:
        self._replicas[replica.model] = replica

    def remove(self, model: str) -> LoadedReplica | None:
        """Removes a model and returns it; None where none of that name is loaded."""
        return self._replicas.pop(model, None)

    def get(self, model: str) -> LoadedReplica | None:
        """The one of a model, or the only one for ''; None where there is none.

        Raises:
            InvalidArgumentError: there are several, and none is named.
        """
        if model:
            return self._replicas.get(model)
        if len(self._replicas) > 1:
            raise InvalidArgumentError(
                f"Worker {self._worker_id} serves several models.", hint=f"Name one of {self.names}.", field="model"
            )
        return next(iter(self), None)

    def require(self, model: str = "") -> LoadedReplica:
        """The same. UnavailableError where nothing is loaded, NotFoundError where that model is not;
        FailedPreconditionError where another worker leads the group."""
        replica = self.get(model)
        if replica is None and self._replicas:
            raise NotFoundError(f"Worker {self._worker_id} serves {self.names}, not '{model}'.", field="model")
        if replica is None:
            raise UnavailableError(
                f"Worker {self._worker_id} has no model loaded yet.", hint="Try again in a moment.", retry_after_s=1.0
            )
        if isinstance(replica.loaded, LoadedRank):
            raise replica.loaded.refusal(self._worker_id)
        return replica

    def generator(self, model: str = "") -> LoadedModel:
        """The same, where it generates; InvalidArgumentError where it does not."""
        loaded = self.require(model).loaded
        if not isinstance(loaded, LoadedModel):
            raise InvalidArgumentError(f"The model '{loaded.order.model}' does not generate.", field="model")
        return loaded

    def encoder(self, model: str = "") -> LoadedEncoder:
        """The same, where it gives vectors; InvalidArgumentError where it generates."""
        loaded = self.require(model).loaded
        if not isinstance(loaded, LoadedEncoder):
            raise InvalidArgumentError(f"The model '{loaded.order.model}' generates text only.", field="model")
        return loaded

    def generators(self) -> list[LoadedModel]:
        return [replica.loaded for replica in self if isinstance(replica.loaded, LoadedModel)]

    def running(self, request_id: str) -> tuple[LoadedModel, list[str]]:
        """Returns the model that a request runs on, and the ids of its sequences; see `ids_of`.

        Raises:
            NotFoundError: it does not run here.
        """
        self.check_leads()
        for loaded in self.generators():
            if request_ids := ids_of(loaded.sessions.request_ids(), request_id):
                return loaded, request_ids
        raise NotFoundError(f"Request '{request_id}' does not run on {self._worker_id}.", field="request_id")

    def by_epoch(self, epoch: str) -> LoadedModel:
        """The one whose cache began with that epoch; FailedPreconditionError where none did."""
        self.check_leads()
        for loaded in self.generators():
            if loaded.epoch == epoch:
                return loaded
        raise FailedPreconditionError(
            f"The cache of {self._worker_id} has begun anew.", hint="Ask for its sharding again."
        )

    def idle_s(self) -> float:
        """Seconds since the last request of any model ended; 0 while one runs."""
        loaded = (replica.loaded for replica in self)
        return min((each.sessions.idle_s() for each in loaded if not isinstance(each, LoadedRank)), default=0.0)

    def check_leads(self) -> None:
        """FailedPreconditionError where another worker leads; UnavailableError where nothing is loaded."""
        self.require(next(iter(self._replicas), ""))

    @property
    def names(self) -> str:
        """Returns the names of the loaded models, quoted and joined for error messages."""
        return ", ".join(f"'{name}'" for name in self._replicas)
