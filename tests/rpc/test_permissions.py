"""Who may call what: a token says a role, and each method of each service says which roles it serves."""

from importlib import import_module
from pathlib import Path

import grpc
import pytest

from headway.rpc.credentials import OPERATOR, ROLES, Credentials, role_token
from headway.rpc.interceptors import CallInterceptor
from headway.rpc.permissions import CALLERS, may_call
from headway.v1 import controller_pb2, controller_pb2_grpc

PROTO = Path(__file__).parents[2] / "proto/headway/v1"
PUBLIC = "headway.v1.InferenceService"


def all_methods() -> set[str]:
    files = [import_module(f"headway.v1.{path.stem}_pb2").DESCRIPTOR for path in PROTO.glob("*.proto")]
    services = [service for file in files for service in file.services_by_name.values() if service.full_name != PUBLIC]
    return {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}


def test_every_method_of_every_internal_service_says_who_may_call_it() -> None:
    """A new method belongs into `headway.rpc.permissions`, if only with nobody but the operator."""
    assert set(CALLERS) == all_methods()
    assert {role for roles in CALLERS.values() for role in roles} <= set(ROLES)


def test_the_operator_may_call_all_and_an_unknown_method_is_for_nobody_else() -> None:
    assert all(may_call(OPERATOR, method) for method in (*CALLERS, "/a.B/C"))
    assert not any(may_call(role, "/a.B/C") for role in ROLES)


def test_the_controller_may_ask_the_router_what_pools_are_scaled_by() -> None:
    """It could not where the stack has tokens, so that no pool was ever scaled on a cluster."""
    assert may_call("controller", "/headway.v1.RouterService/GetFleet")


def test_a_token_is_of_one_role_and_leads_to_no_other() -> None:
    credentials = Credentials.of_stack("sesame", role="gateway")
    tokens = {role: role_token("sesame", role) for role in (OPERATOR, *ROLES)}
    assert {role: credentials.role_of(token) for role, token in tokens.items()} == {role: role for role in tokens}
    assert len(set(tokens.values())) == len(tokens)
    assert credentials.token == tokens["gateway"]
    for wrong in ("", "sesam", *credentials.hashes.values(), role_token("mellon", "gateway")):
        assert credentials.role_of(wrong) is None


class Controller(controller_pb2_grpc.ControllerServiceServicer):
    async def GetStatus(  # noqa: N802
        self, request: controller_pb2.GetStatusRequest, context: object
    ) -> controller_pb2.GetStatusResponse:
        return controller_pb2.GetStatusResponse(ready=True)

    async def Shutdown(  # noqa: N802
        self, request: controller_pb2.ShutdownRequest, context: object
    ) -> controller_pb2.ShutdownResponse:
        return controller_pb2.ShutdownResponse()


async def test_a_role_reaches_its_methods_and_is_told_of_others() -> None:
    server = grpc.aio.server(interceptors=[CallInterceptor(Credentials.of_stack("sesame", role="controller"))])
    controller_pb2_grpc.add_ControllerServiceServicer_to_server(Controller(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    metadata = (("authorization", f"Bearer {role_token('sesame', 'gateway')}"),)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: controller_pb2_grpc.ControllerServiceAsyncStub = controller_pb2_grpc.ControllerServiceStub(channel)
        assert (await stub.GetStatus(controller_pb2.GetStatusRequest(), metadata=metadata)).ready
        with pytest.raises(grpc.aio.AioRpcError, match="A gateway may not call ControllerService/Shutdown") as caught:
            await stub.Shutdown(controller_pb2.ShutdownRequest(), metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await server.stop(None)
