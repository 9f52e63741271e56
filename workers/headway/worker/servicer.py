"""WorkerService over gRPC: convert, call, convert."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import grpc

from headway.core.errors import HeadwayError
from headway.core.mesh import SINGLE, ParallelConfig
from headway.core.move import MoveTarget
from headway.core.prefix_source import PrefixSource
from headway.core.request import SequenceOutput
from headway.engine.config import PreemptionMode
from headway.engine.events import BlockEvent, BlockStored
from headway.rpc.convert import from_pb, group_from_pb, output_to_pb, to_pb
from headway.rpc.convert.infer import infer_from_pb
from headway.rpc.convert.load import load_to_pb
from headway.rpc.status import error_to_pb
from headway.v1 import common_pb2, worker_pb2, worker_pb2_grpc
from headway.worker.load_call import LoadCall
from headway.worker.order import DEFAULT_COLLECTIVE_TIMEOUT_S, LoadOrder
from headway.worker.service import WorkerService
from headway.worker.sessions import Refusal, Session
from headway.worker.transfer.parts import split

log = logging.getLogger(__name__)

_BLOCKS_EVERY_S = 0.1


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    def __init__(self, service: WorkerService) -> None:
        self._service = service

    async def GetWorker(
        self, request: worker_pb2.GetWorkerRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.GetWorkerResponse:
        service, loaded = self._service, self._service.loaded
        response = worker_pb2.GetWorkerResponse(
            worker_id=service.worker_id,
            hardware=to_pb(service.hardware, common_pb2.Hardware),
            state=service.state,
        )
        if loaded is not None:
            order = loaded.order
            response.model = order.model
            response.plan_id = order.plan_id
            response.weight_bytes = loaded.runner.weight_bytes
            response.num_blocks = order.num_blocks
            response.block_size = order.block_size
            response.max_model_len = order.max_model_len
            response.num_steps = loaded.num_steps
            response.parallel.CopyFrom(to_pb(order.parallel, common_pb2.ParallelConfig))
            response.rank = order.rank
            response.group_id = order.group_id
            response.group_epoch = order.group_epoch
        return response

    async def LoadModel(
        self, request: worker_pb2.LoadModelRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[worker_pb2.LoadModelResponse]:
        call = LoadCall()
        load = asyncio.create_task(self._service.load(_order_from_pb(request), call=call))
        async with aclosing(call.progress(load)) as steps:
            async for step in steps:
                yield worker_pb2.LoadModelResponse(fraction=step.fraction, stage=step.stage, rendezvous=step.rendezvous)
        await load
        yield worker_pb2.LoadModelResponse(fraction=1.0, stage="ready", done=True)

    async def GenerateTokens(
        self,
        request_iterator: AsyncIterator[worker_pb2.GenerateTokensRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[worker_pb2.GenerateTokensResponse]:
        session = self._service.open_session()
        reader = asyncio.create_task(self._read(request_iterator, session))
        try:
            async for outputs in session.steps():
                yield worker_pb2.GenerateTokensResponse(outputs=[_output_to_pb(output) for output in outputs])
        finally:
            reader.cancel()
            session.close()

    async def _read(self, request_iterator: AsyncIterator[worker_pb2.GenerateTokensRequest], session: Session) -> None:
        async for request in request_iterator:
            if request.WhichOneof("action") == "cancel":
                session.cancel(request.cancel.request_id)
                continue
            group = _group_of(request)
            if not group.sequences:
                continue
            try:
                self._service.submit(
                    session,
                    group_from_pb(group),
                    traceparent=group.sequences[0].traceparent,
                    decode_target=from_pb(group.decode_target, MoveTarget) if group.HasField("decode_target") else None,
                    source=from_pb(group.prefix_source, PrefixSource) if group.HasField("prefix_source") else None,
                )
            except HeadwayError as error:
                session.deliver([Refusal(sequence.request_id, error) for sequence in group.sequences])
        session.finish()

    async def InferSequences(
        self, request: worker_pb2.InferSequencesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.InferSequencesResponse:
        vectors = await self._service.infer(infer_from_pb(request), traceparent=request.traceparent)
        return worker_pb2.InferSequencesResponse(vectors=vectors)

    async def WatchLoad(
        self, request: worker_pb2.WatchLoadRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[worker_pb2.WatchLoadResponse]:
        interval_s = max(request.interval_ms, 1) / 1000
        while not self._service.is_stopped:
            change = self._service.next_change()
            yield load_to_pb(self._service.report())
            await asyncio.gather(asyncio.sleep(interval_s), change)

    async def WatchBlocks(
        self, request: worker_pb2.WatchBlocksRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[worker_pb2.WatchBlocksResponse]:
        loaded = self._service.require_loaded()
        number = request.after_sequence_number if request.epoch == loaded.epoch else 0
        must_snapshot = number == 0
        while self._service.loaded is loaded and not self._service.is_stopped:
            change = self._service.next_change()
            batch = None if must_snapshot else loaded.events.since(number)
            if batch is None:
                snapshot = loaded.events.snapshot()
                blocks: tuple[BlockEvent, ...] = snapshot.blocks
                number = snapshot.last_sequence_number
                yield _blocks_to_pb(loaded.epoch, number, blocks, snapshot=True)
            elif batch.events:
                number = batch.last_sequence_number
                yield _blocks_to_pb(loaded.epoch, number, batch.events, snapshot=False)
            must_snapshot = False
            await asyncio.gather(asyncio.sleep(_BLOCKS_EVERY_S), change)

    async def GetBlocks(
        self, request: worker_pb2.GetBlocksRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.GetBlocksResponse:
        return worker_pb2.GetBlocksResponse(usage=to_pb(await self._service.usage(), common_pb2.KvUsage))

    async def GetBlockTables(
        self, request: worker_pb2.GetBlockTablesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.GetBlockTablesResponse:
        sequences = await self._service.sequences(request.request_id)
        return worker_pb2.GetBlockTablesResponse(
            sequences=[to_pb(sequence, common_pb2.SequenceBlocks) for sequence in sequences]
        )

    async def SetPins(
        self, request: worker_pb2.SetPinsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.SetPinsResponse:
        pins = {pin.name: tuple(pin.token_ids) for pin in request.pins}
        states = await self._service.set_pins(request.model, pins)
        return worker_pb2.SetPinsResponse(states=[to_pb(state, worker_pb2.PinState) for state in states])

    async def GetSharding(
        self, request: worker_pb2.GetShardingRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.GetShardingResponse:
        return worker_pb2.GetShardingResponse(sharding=to_pb(await self._service.sharding(), common_pb2.Sharding))

    async def SetSharding(
        self, request: worker_pb2.SetShardingRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.SetShardingResponse:
        await self._service.set_sharding(tuple(request.weights), epoch=request.epoch)
        return worker_pb2.SetShardingResponse()

    async def MeasureStep(
        self, request: worker_pb2.MeasureStepRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.MeasureStepResponse:
        step_s = await self._service.measure_step(
            prefill_tokens=request.prefill_tokens,
            num_decodes=request.num_decodes,
            context_tokens=request.context_tokens,
        )
        return worker_pb2.MeasureStepResponse(step_s=step_s)

    async def Drain(
        self, request: worker_pb2.DrainRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.DrainResponse:
        targets = [from_pb(target, MoveTarget) for target in request.targets]
        drained = await self._service.drain(deadline_s=request.deadline_s, targets=targets)
        return to_pb(drained, worker_pb2.DrainResponse)

    async def ReadBlocks(
        self, request: worker_pb2.ReadBlocksRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[worker_pb2.ReadBlocksResponse]:
        own = self._service.own_blocks(request.model)
        yield worker_pb2.ReadBlocksResponse(layout=to_pb(own.layout, worker_pb2.BlockLayout))
        async with aclosing(own.read(request.block_hashes, layout=own.layout)) as pieces:
            async for piece in pieces:
                for message in split(piece):
                    parts = [
                        worker_pb2.BlockPart(block_hash=part.name, offset_bytes=part.offset_bytes, content=part.content)
                        for part in message
                    ]
                    yield worker_pb2.ReadBlocksResponse(parts=parts)

    async def FetchBlocks(
        self, request: worker_pb2.FetchBlocksRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.FetchBlocksResponse:
        fetched = await self._service.fetch_blocks(
            request.model,
            [chain.block_hashes for chain in request.chains],
            source_endpoint=request.source_endpoint,
            num_sequences=request.num_sequences,
        )
        return to_pb(fetched, worker_pb2.FetchBlocksResponse)

    async def MoveSequences(
        self, request: worker_pb2.MoveSequencesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.MoveSequencesResponse:
        move = await self._service.move(request.request_id, target=from_pb(request.target, MoveTarget))
        return worker_pb2.MoveSequencesResponse(
            num_sequences=move.num_sequences,
            num_blocks=move.num_blocks,
            num_bytes=move.num_bytes,
            recompute_reason=move.recompute_reason,
        )


def _group_of(request: worker_pb2.GenerateTokensRequest) -> worker_pb2.SubmitGroup:
    if request.WhichOneof("action") == "submit":
        return worker_pb2.SubmitGroup(sequences=[request.submit])
    return request.submit_group


def _order_from_pb(request: worker_pb2.LoadModelRequest) -> LoadOrder:
    return LoadOrder(
        plan_id=request.plan_id,
        model=request.model,
        directory=Path(request.directory),
        dtype=request.dtype,
        num_blocks=request.num_blocks,
        block_size=request.block_size,
        max_num_seqs=request.max_num_seqs,
        max_num_batched_tokens=request.max_num_batched_tokens,
        max_model_len=request.max_model_len,
        enable_prefix_cache=request.enable_prefix_cache,
        max_num_prefill_tokens=request.max_num_prefill_tokens if request.HasField("max_num_prefill_tokens") else None,
        num_host_blocks=request.num_host_blocks,
        preemption=cast("PreemptionMode", request.preemption or "auto"),
        num_draft_tokens=request.num_draft_tokens,
        quantization=request.quantization,
        parallel=from_pb(request.parallel, ParallelConfig) if request.HasField("parallel") else SINGLE,
        rank=request.rank,
        worker_ids=tuple(request.worker_ids),
        rendezvous=request.rendezvous,
        group_id=request.group_id,
        collective_timeout_s=request.collective_timeout_s or DEFAULT_COLLECTIVE_TIMEOUT_S,
    )


def _output_to_pb(output: SequenceOutput | Refusal) -> worker_pb2.SequenceOutput:
    if isinstance(output, SequenceOutput):
        return output_to_pb(output)
    return worker_pb2.SequenceOutput(
        request_id=output.request_id,
        finish_reason=common_pb2.FINISH_REASON_ERROR,
        error=error_to_pb(output.error),
        moved_to_worker_id=output.moved_to,
    )


def _blocks_to_pb(
    epoch: str, number: int, events: tuple[BlockEvent, ...], *, snapshot: bool
) -> worker_pb2.WatchBlocksResponse:
    response = worker_pb2.WatchBlocksResponse(epoch=epoch, sequence_number=number, snapshot=snapshot)
    for event in events:
        if isinstance(event, BlockStored):
            response.events.add(
                kind=worker_pb2.BlockEvent.KIND_STORED,
                block_hash=event.block_hash,
                parent_hash=event.parent_hash,
            )
        else:
            response.events.add(kind=worker_pb2.BlockEvent.KIND_REMOVED, block_hash=event.block_hash)
    return response
