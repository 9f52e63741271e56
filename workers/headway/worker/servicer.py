"""WorkerService over gRPC: it converts messages, calls the worker's service, and converts the results."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from headway.core.errors import HeadwayError
from headway.core.hardware.calibration import RankPlace
from headway.core.hardware.cell import Cell
from headway.core.move import MoveTarget
from headway.core.prefix_source import PrefixSource
from headway.core.program import Program
from headway.core.program_check import check_program
from headway.core.request import SequenceOutput
from headway.engine.events import BlockStored
from headway.rpc.convert import from_pb, group_from_pb, load_order_from_pb, output_to_pb, to_pb
from headway.rpc.convert.infer import infer_from_pb
from headway.rpc.convert.load import loads_to_pb
from headway.rpc.status import error_to_pb
from headway.rpc.tasks import tell_failure
from headway.v1 import common_pb2, worker_pb2, worker_pb2_grpc
from headway.worker.block_feeds import BlockFeeds, BlockUpdate
from headway.worker.fence import Fence
from headway.worker.load_call import LoadCall
from headway.worker.service import WorkerService
from headway.worker.sessions import Refusal, Session
from headway.worker.transfer.parts import split

log = logging.getLogger(__name__)

_BLOCKS_EVERY_S = 0.1


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    def __init__(self, service: WorkerService) -> None:
        self._service = service
        self._fence = Fence()

    async def GetWorker(
        self, request: worker_pb2.GetWorkerRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.GetWorkerResponse:
        self._fence.check(context)
        service, replicas = self._service, list(self._service.replicas)
        response = worker_pb2.GetWorkerResponse(
            worker_id=service.worker_id,
            hardware=to_pb(service.hardware, common_pb2.Hardware),
            state=service.state,
        )
        for replica in replicas:
            loaded, order = replica.loaded, replica.loaded.order
            response.replicas.add(
                model=order.model,
                plan_id=order.plan_id,
                state=replica.state,
                weight_bytes=loaded.weight_bytes,
                num_blocks=order.num_blocks,
                block_size=order.block_size,
                max_model_len=order.max_model_len,
                num_steps=loaded.num_steps,
                engine=order.engine,
                backend=order.backend,
            )
        if replicas:
            loaded, order = replicas[0].loaded, replicas[0].loaded.order
            response.model = order.model
            response.plan_id = order.plan_id
            response.weight_bytes = loaded.weight_bytes
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
        self._fence.check(context)
        call = LoadCall()
        load = asyncio.create_task(self._service.load(load_order_from_pb(request), call=call))
        async with aclosing(call.progress(load)) as steps:
            async for step in steps:
                yield worker_pb2.LoadModelResponse(fraction=step.fraction, stage=step.stage, rendezvous=step.rendezvous)
        await load
        yield worker_pb2.LoadModelResponse(fraction=1.0, stage="ready", done=True)

    async def UnloadModel(
        self, request: worker_pb2.UnloadModelRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.UnloadModelResponse:
        self._fence.check(context)
        await self._service.unload(request.model)
        return worker_pb2.UnloadModelResponse()

    async def GenerateTokens(
        self,
        request_iterator: AsyncIterator[worker_pb2.GenerateTokensRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[worker_pb2.GenerateTokensResponse]:
        requests = aiter(request_iterator)
        first = await anext(requests, None)  # refused while it is written, the caller would not hear why
        session = self._service.open_session()
        reader = asyncio.create_task(self._read(first, requests, session))
        tell_failure(reader, session.end)
        takes_plain = first is not None and first.takes_plain_tokens
        try:
            async for outputs in session.steps():
                yield _step_to_pb(outputs, takes_plain=takes_plain)
        finally:
            reader.cancel()
            self._service.close_session(session)

    async def _read(
        self,
        first: worker_pb2.GenerateTokensRequest | None,
        others: AsyncIterator[worker_pb2.GenerateTokensRequest],
        session: Session,
    ) -> None:
        if first is not None:
            self._take(first, session)
        async for request in others:
            self._take(request, session)
        session.finish()

    def _take(self, request: worker_pb2.GenerateTokensRequest, session: Session) -> None:
        if request.WhichOneof("action") == "cancel":
            session.cancel([request.cancel.request_id, *request.cancel.request_ids])
            return
        group = _group_of(request)
        if not group.sequences:
            return
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
            yield loads_to_pb(self._service.report())
            await asyncio.gather(asyncio.sleep(interval_s), change)

    async def WatchBlocks(
        self, request: worker_pb2.WatchBlocksRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[worker_pb2.WatchBlocksResponse]:
        positions = {position.epoch: position.after_sequence_number for position in request.others}
        positions[request.epoch] = request.after_sequence_number
        feeds = BlockFeeds(positions)
        while not self._service.is_stopped:
            change = self._service.next_change()
            for update in feeds.updates(self._service.replicas):
                yield _blocks_to_pb(update)
            await asyncio.gather(asyncio.sleep(_BLOCKS_EVERY_S), change)

    async def GetBlocks(
        self, request: worker_pb2.GetBlocksRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.GetBlocksResponse:
        usages = [to_pb(usage, common_pb2.KvUsage) for usage in await self._service.caches.usage()]
        first = usages[0] if usages else common_pb2.KvUsage(worker_id=self._service.worker_id)
        return worker_pb2.GetBlocksResponse(usage=first, usages=usages)

    async def GetBlockTables(
        self, request: worker_pb2.GetBlockTablesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.GetBlockTablesResponse:
        order, sequences = await self._service.caches.sequences(request.request_id)
        return worker_pb2.GetBlockTablesResponse(
            sequences=[to_pb(sequence, common_pb2.SequenceBlocks) for sequence in sequences],
            model=order.model,
            block_size=order.block_size,
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
        sharding = await self._service.caches.sharding()
        return worker_pb2.GetShardingResponse(sharding=to_pb(sharding, common_pb2.Sharding))

    async def SetSharding(
        self, request: worker_pb2.SetShardingRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.SetShardingResponse:
        await self._service.caches.set_sharding(tuple(request.weights), epoch=request.epoch)
        return worker_pb2.SetShardingResponse()

    async def MeasureStep(
        self, request: worker_pb2.MeasureStepRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.MeasureStepResponse:
        step_s = await self._service.measure_step(
            prefill_tokens=request.prefill_tokens,
            num_decodes=request.num_decodes,
            context_tokens=request.context_tokens,
            model=request.model,
        )
        return worker_pb2.MeasureStepResponse(step_s=step_s)

    async def MeasurePrograms(
        self, request: worker_pb2.MeasureProgramsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[worker_pb2.MeasureProgramsResponse]:
        programs = await asyncio.to_thread(_programs_of, request)
        async with aclosing(self._service.measuring.measure(programs, share=request.share)) as timings:
            async for timing in timings:
                yield to_pb(timing, worker_pb2.MeasureProgramsResponse)

    async def MeasureHardware(
        self, request: worker_pb2.MeasureHardwareRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[worker_pb2.MeasureHardwareResponse]:
        cells = [from_pb(cell, Cell) for cell in request.cells]
        place = from_pb(request.place, RankPlace) if request.HasField("place") else None
        async with aclosing(self._service.measuring.calibrate(cells, share=request.share, place=place)) as answers:
            async for answer in answers:
                yield to_pb(answer, worker_pb2.MeasureHardwareResponse)

    async def Drain(
        self, request: worker_pb2.DrainRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.DrainResponse:
        self._fence.check(context)
        targets = [from_pb(target, MoveTarget) for target in request.targets]
        drained = await self._service.drain(deadline_s=request.deadline_s, targets=targets, model=request.model)
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


def _programs_of(request: worker_pb2.MeasureProgramsRequest) -> list[Program]:
    programs = [from_pb(program, Program) for program in request.programs]
    for program in programs:
        check_program(program)
    return programs


def _group_of(request: worker_pb2.GenerateTokensRequest) -> worker_pb2.SubmitGroup:
    if request.WhichOneof("action") == "submit":
        return worker_pb2.SubmitGroup(sequences=[request.submit])
    return request.submit_group


def _step_to_pb(outputs: list[SequenceOutput | Refusal], *, takes_plain: bool) -> worker_pb2.GenerateTokensResponse:
    step = worker_pb2.GenerateTokensResponse()
    plain = []
    for output in outputs:
        if isinstance(output, Refusal):
            step.outputs.add(
                request_id=output.request_id,
                finish_reason=common_pb2.FINISH_REASON_ERROR,
                error=error_to_pb(output.error),
                moved_to_worker_id=output.moved_to,
            )
        elif takes_plain and output.is_plain:
            plain.append(output)
        else:
            step.outputs.append(output_to_pb(output))
    step.plain_request_ids.extend([output.request_id for output in plain])
    step.plain_token_ids.extend([output.token_ids[0] for output in plain])
    return step


def _blocks_to_pb(update: BlockUpdate) -> worker_pb2.WatchBlocksResponse:
    response = worker_pb2.WatchBlocksResponse(
        model=update.model,
        epoch=update.epoch,
        sequence_number=update.sequence_number,
        snapshot=update.snapshot,
    )
    for event in update.events:
        if isinstance(event, BlockStored):
            response.events.add(
                kind=worker_pb2.BlockEvent.KIND_STORED,
                block_hash=event.block_hash,
                parent_hash=event.parent_hash,
            )
        else:
            response.events.add(kind=worker_pb2.BlockEvent.KIND_REMOVED, block_hash=event.block_hash)
    return response
