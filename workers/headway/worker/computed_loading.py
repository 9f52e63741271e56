"""Loading a model that is computed: its weights, and the group that computes it."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import torch

from headway.checkpoint.model_directory import Checkpoint, read_checkpoint
from headway.core.cluster import Hardware
from headway.core.engine_kind import EngineKind
from headway.core.errors import FailedPreconditionError
from headway.core.load_order import LoadOrder
from headway.core.model import ModelSpec
from headway.core.shard import check_parallel
from headway.encoder.engine import EncoderEngine
from headway.engine.engine import Engine
from headway.observe.tracing import Tracing
from headway.runner.cuda_graph import TorchCudaGraph, launches_whole_steps
from headway.runner.device_lock import FairDeviceLock, NullDeviceLock
from headway.runner.encoder_runner import EncoderRunner
from headway.runner.encoder_shard import EncoderShard
from headway.runner.model_runner import ModelRunner
from headway.runner.parallel.follower import Follower
from headway.runner.parallel.leader import Leader
from headway.runner.parallel.rank_loop import Shard
from headway.runner.parallel.rank_runner import RankRunner
from headway.runner.shard_runner import ShardRunner
from headway.runner.step_graphs import CudaGraph
from headway.worker.group_loading import GroupLoading, GroupMembership
from headway.worker.headway_engine import HeadwayEngine
from headway.worker.limits import check_cache_memory, encoder_limits, engine_config
from headway.worker.load_call import LoadCall
from headway.worker.loaded import Start
from headway.worker.loaded_encoder import LoadedEncoder
from headway.worker.loaded_model import LoadedModel
from headway.worker.loaded_rank import LoadedRank
from headway.worker.owner import Owner

log = logging.getLogger(__name__)

ByteProgress: TypeAlias = Callable[[int, int], None]


class ComputedLoader:
    """Loads models that this worker computes itself; implements `Loader`. Models of a lone worker take turns on the
    device; those of a group run in the order of its steps.
    """

    def __init__(
        self, hardware: Hardware, *, address: str, has_graphs: bool = True, overlaps_steps: bool = True
    ) -> None:
        self._hardware = hardware
        self._has_graphs = has_graphs
        self._overlaps_steps = overlaps_steps
        self._device_lock = FairDeviceLock()
        self._groups = GroupLoading(device=hardware.device, address=address)

    def prepare(self, order: LoadOrder, *, call: LoadCall) -> Start:
        """Loads the weights; in a group, those of the worker's rank. See `Loader.prepare`."""
        if order.engine is not EngineKind.HEADWAY:
            raise FailedPreconditionError(
                f"The worker computes itself; '{order.model}' is to run on {order.engine}.",
                hint="Make a plan for the workers that are there.",
            )
        if order.is_in_group:
            return self._groups.load(order, call=call, load=partial(self._load, call=call))
        return self._load(order, None, call=call)

    def _load(self, order: LoadOrder, membership: GroupMembership | None, *, call: LoadCall) -> Start:
        checkpoint = read_checkpoint(
            Path(order.directory),
            dtype=order.dtype or None,
            quantization=order.quantization or None,
            generation_config=order.generation_config,
        )
        check_parallel(checkpoint.spec, order.parallel, num_workers=order.parallel.num_ranks)
        check_cache_memory(order, checkpoint.spec, memory_bytes=self._hardware.memory_bytes)

        def note(done_bytes: int, total_bytes: int) -> None:
            call.tell(done_bytes / max(total_bytes, 1), f"loading {order.model}")
            if membership is not None:
                call.check()  # others wait for this rank, and the caller may have given up on one of them

        if membership is not None and isinstance(membership.role, Follower):
            return self._load_rank(order, checkpoint, note, membership, membership.role)
        return self._load_model(order, checkpoint, note, membership)

    def _load_model(
        self, order: LoadOrder, checkpoint: Checkpoint, note: ByteProgress, membership: GroupMembership | None
    ) -> Start:
        """Loads a model at the leader of a group, or on a lone worker."""
        group, leader, number = None, None, 0
        if membership is not None and isinstance(membership.role, Leader):
            leader, number = membership.role, membership.rendezvous.number
            group = leader.open(number, parallel=order.parallel)
        device, num_threads = self._hardware.device, self._hardware.num_threads
        device_lock = self._device_lock if leader is None else NullDeviceLock()
        if checkpoint.spec.encoder is not None:
            limits = encoder_limits(order, checkpoint.spec)
            encoder = EncoderRunner(
                checkpoint,
                group=group,
                leader=leader,
                number=number,
                device=device,
                num_threads=num_threads,
                progress=note,
                backend=order.backend,
            )
            backend = "" if encoder.backend is None else str(encoder.backend)
            if backend:
                log.info("the layers of %s run on %s", order.model, backend)

            def start(owner: Owner, tracing: Tracing) -> LoadedEncoder:
                engine = EncoderEngine(limits, runner=encoder, clock=time.perf_counter, queue_policy=owner.queue_policy)
                return LoadedEncoder(
                    order,
                    engine=engine,
                    runner=encoder,
                    device_lock=device_lock,
                    owner=owner,
                    tracing=tracing,
                    backend=backend,
                )

            return start
        runs_ahead = self._overlaps_steps and self._is_asynchronous(order, checkpoint.spec)
        config = engine_config(order, checkpoint.spec, runs_ahead=runs_ahead)
        runner = ModelRunner(
            checkpoint,
            group=group,
            leader=leader,
            number=number,
            num_blocks=order.num_own_blocks,
            block_size=order.block_size,
            num_host_blocks=order.num_own_host_blocks,
            max_num_seqs=order.max_num_seqs,
            device=device,
            capture=self._capture(order, checkpoint.spec),
            runs_ahead=runs_ahead,
            num_threads=num_threads,
            progress=note,
        )
        runner.populate_cache()

        def start_model(owner: Owner, tracing: Tracing) -> LoadedModel:
            own = replace(config, queue_policy=owner.queue_policy)
            engine = Engine(own, runner=runner, clock=time.perf_counter)
            computed = HeadwayEngine(order, engine=engine, runner=runner, device_lock=device_lock)
            return LoadedModel(order, engine=computed, owner=owner, tracing=tracing)

        return start_model

    def _capture(self, order: LoadOrder, spec: ModelSpec) -> CudaGraph | None:
        """Returns what captures decode steps as CUDA graphs, or None where steps cannot be captured."""
        is_wanted = self._has_graphs and self._is_asynchronous(order, spec)
        return TorchCudaGraph(torch.device(self._hardware.device)) if is_wanted else None

    def _is_asynchronous(self, order: LoadOrder, spec: ModelSpec) -> bool:
        """Whether the host launches a whole step without waiting for any of it: not in a group, whose ranks meet within
        a step."""
        return not order.is_in_group and launches_whole_steps(spec, torch.device(self._hardware.device))

    def _load_rank(
        self,
        order: LoadOrder,
        checkpoint: Checkpoint,
        note: ByteProgress,
        membership: GroupMembership,
        follower: Follower,
    ) -> Start:
        group, number = membership.group.seen_by_model(order.parallel), membership.rendezvous.number
        device, num_threads = self._hardware.device, self._hardware.num_threads
        shard: Shard
        if checkpoint.spec.encoder is not None:
            shard = EncoderShard(checkpoint, group=group, device=device, num_threads=num_threads, progress=note)
        else:
            shard = ShardRunner(
                checkpoint,
                group=group,
                num_blocks=order.num_own_blocks,
                block_size=order.block_size,
                num_host_blocks=order.num_own_host_blocks,
                max_num_seqs=order.max_num_seqs,
                device=device,
                num_threads=num_threads,
                progress=note,
            )
            shard.populate_cache()
        follower.add(number, shard)
        runner = RankRunner(shard, group=group, follower=follower, number=number)
        return lambda owner, _: LoadedRank(order, runner=runner, owner=owner)
