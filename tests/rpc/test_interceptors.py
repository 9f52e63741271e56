"""What is told of calls: who changed the stack."""

import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace

import grpc
import pytest

from headway.core.errors import FailedPreconditionError
from headway.rpc.credentials import Credentials
from headway.rpc.interceptors import CallInterceptor
from headway.v1 import controller_pb2, controller_pb2_grpc

TOKEN = (("authorization", "Bearer secret"),)


class Controller(controller_pb2_grpc.ControllerServiceServicer):
    async def Shutdown(  # noqa: N802
        self, request: controller_pb2.ShutdownRequest, context: object
    ) -> controller_pb2.ShutdownResponse:
        return controller_pb2.ShutdownResponse()

    async def ApplyPlan(  # noqa: N802
        self, request: controller_pb2.ApplyPlanRequest, context: object
    ) -> controller_pb2.ApplyPlanResponse:
        raise FailedPreconditionError("There is no such plan.")

    async def GetStatus(  # noqa: N802
        self, request: controller_pb2.GetStatusRequest, context: object
    ) -> controller_pb2.GetStatusResponse:
        return controller_pb2.GetStatusResponse()


async def test_every_call_that_changes_the_stack_is_told_with_its_caller_and_outcome(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = grpc.aio.server(interceptors=[CallInterceptor(Credentials.of_stack("secret", role="controller"))])
    controller_pb2_grpc.add_ControllerServiceServicer_to_server(Controller(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with caplog.at_level(logging.INFO, logger="headway.audit"):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub: controller_pb2_grpc.ControllerServiceAsyncStub = controller_pb2_grpc.ControllerServiceStub(channel)
            await stub.GetStatus(controller_pb2.GetStatusRequest(), metadata=TOKEN)
            await stub.Shutdown(controller_pb2.ShutdownRequest(), metadata=TOKEN)
            for metadata in (TOKEN, ()):
                with pytest.raises(grpc.aio.AioRpcError):
                    await stub.ApplyPlan(controller_pb2.ApplyPlanRequest(), metadata=metadata)
    await server.stop(None)
    told = [record.getMessage() for record in caplog.records if record.name == "headway.audit"]
    assert [line.partition(" ")[0] for line in told] == ["ControllerService/Shutdown"] + [
        "ControllerService/ApplyPlan"
    ] * 2
    assert [line.rpartition(": ")[2] for line in told] == ["ok", "failed_precondition", "unauthenticated"]
    assert all("by ipv4:127.0.0.1:" in line for line in told)
    assert [line.rpartition(", ")[2].partition(":")[0] for line in told] == ["operator", "operator", "unknown"]


async def test_a_stream_whose_caller_has_left_is_told_without_asking_the_call_that_is_over() -> None:
    """gRPC reads the peer of such a call from memory that is free, which ended the process."""
    is_over = False

    def peer() -> str:
        assert not is_over
        return "ipv4:127.0.0.1:9"

    async def answers(request: object, context: object) -> AsyncIterator[int]:
        yield 1
        yield 2

    async def found(details: object) -> object:
        return grpc.unary_stream_rpc_method_handler(answers)  # type: ignore[arg-type]

    details = SimpleNamespace(method="/headway.v1.ProfilerService/ProfileHardware")
    handler = await CallInterceptor().intercept_service(found, details)  # type: ignore[arg-type]
    stream = handler.unary_stream(None, SimpleNamespace(peer=peer, invocation_metadata=lambda: ()))
    assert await anext(stream) == 1
    is_over = True
    await stream.aclose()
