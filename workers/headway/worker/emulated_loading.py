"""Loading a model on emulated devices: its configuration is read, its weights are not."""

import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path

from headway.checkpoint.model_directory import read_spec
from headway.core.errors import FailedPreconditionError
from headway.core.load_order import LoadOrder
from headway.core.model import ModelSpec
from headway.encoder.engine import EncoderEngine
from headway.engine.engine import Engine
from headway.observe.tracing import Tracing
from headway.runner.device_lock import NullDeviceLock
from headway.runner.emulated.clock import WallClock
from headway.runner.emulated.encoder_runner import EmulatedEncoderRunner
from headway.runner.emulated.line import Line
from headway.runner.emulated.memory import release_unused
from headway.runner.emulated.model_runner import EmulatedModelRunner
from headway.runner.emulated.rank_runner import EmulatedRankRunner
from headway.worker.headway_engine import HeadwayEngine
from headway.worker.limits import encoder_limits, engine_config
from headway.worker.load_call import LoadCall
from headway.worker.loaded import Start
from headway.worker.loaded_encoder import LoadedEncoder
from headway.worker.loaded_model import LoadedModel
from headway.worker.loaded_rank import LoadedRank
from headway.worker.owner import Owner

_NUM_LOGGED_EVENTS = 8192  # readers that lag further behind begin anew; it keeps many workers small


class EmulatedLoader:
    """Loads models on an emulated device, which computes nothing; implements `Loader`. The models of a group wait in
    one line for its pipeline, whose clocks its leader keeps.

    The ranks of a group have nothing to say to each other; the leader names their run, and the controller, which sees
    each of them die, ends the others.
    """

    def __init__(self) -> None:
        self._line = Line(num_stages=1, clock=WallClock())
        self._run: tuple[tuple[str, ...], str] = ((), "")  # the group's workers, and its name

    def prepare(self, order: LoadOrder, *, call: LoadCall) -> Start:
        """Prepares an emulated model; see `Loader.prepare`.

        Raises:
            FailedPreconditionError: the order does not say how long a step takes.
            HeadwayError: the model's configuration is missing or malformed.
        """
        if not order.stage_latencies:
            raise FailedPreconditionError(
                f"The plan does not say how long {order.model} takes on an emulated device.",
                hint="Make a plan for the workers that are there.",
            )
        release_unused()
        if order.is_in_group and not order.rendezvous:
            order = replace(order, rendezvous=f"emulated/{self._epoch_of(order.worker_ids)}")
            call.tell(0.0, "naming the group's run", rendezvous=order.rendezvous)
        if order.rank > 0:
            rank = EmulatedRankRunner()
            return lambda owner, _: LoadedRank(order, runner=rank, owner=owner)
        return _lead(order, self._line_of(len(order.stage_latencies)))

    def _epoch_of(self, worker_ids: tuple[str, ...]) -> str:
        """The same for all models of a group."""
        if self._run[0] != worker_ids:
            self._run = (worker_ids, uuid.uuid4().hex)
        return self._run[1]

    def _line_of(self, num_stages: int) -> Line:
        """A group with other stages has none of the models that were here before."""
        if self._line.num_stages != num_stages:
            self._line = Line(num_stages=num_stages, clock=WallClock())
        return self._line


def _lead(order: LoadOrder, line: Line) -> Start:
    spec = read_spec(
        Path(order.directory),
        dtype=order.dtype or None,
        quantization=order.quantization or None,
        generation_config=order.generation_config,
    )
    return partial(_start_encoder if spec.encoder is not None else _start_model, order, spec, line)


def _start_encoder(order: LoadOrder, spec: ModelSpec, line: Line, owner: Owner, tracing: Tracing) -> LoadedEncoder:
    runner = EmulatedEncoderRunner(spec, stage_latencies=order.stage_latencies, line=line)
    engine = EncoderEngine(
        encoder_limits(order, spec), runner=runner, clock=line.clock.now_s, queue_policy=owner.queue_policy
    )
    return LoadedEncoder(
        order, engine=engine, runner=runner, device_lock=NullDeviceLock(), owner=owner, tracing=tracing
    )


def _start_model(order: LoadOrder, spec: ModelSpec, line: Line, owner: Owner, tracing: Tracing) -> LoadedModel:
    runner = EmulatedModelRunner(spec, stage_latencies=order.stage_latencies, line=line)
    config = replace(engine_config(order, spec), num_logged_events=_NUM_LOGGED_EVENTS, queue_policy=owner.queue_policy)
    engine = Engine(config, runner=runner, clock=line.clock.now_s)
    emulated = HeadwayEngine(order, engine=engine, runner=runner, device_lock=NullDeviceLock())
    return LoadedModel(order, engine=emulated, owner=owner, tracing=tracing)
