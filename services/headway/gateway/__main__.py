"""Starts the process `headway-gateway`."""

import asyncio
import time
from contextlib import suppress

import headway.rpc  # noqa: F401 - gRPC's settings, before gRPC
from headway.core.errors import UnavailableError
from headway.gateway.app import make_app
from headway.gateway.client import InferClient, TokenStreamClient
from headway.gateway.config import GatewayConfig
from headway.gateway.generation import Generator
from headway.gateway.http_server import HttpServer
from headway.gateway.infer.run import Inferrer
from headway.gateway.key_ring import KeyRing
from headway.gateway.link import Links
from headway.gateway.message_limits import MessageLimits
from headway.gateway.quarantine import Quarantine
from headway.gateway.router_link import RouterLinks
from headway.gateway.served_models import ServedModels
from headway.gateway.service import GatewayService
from headway.gateway.servicer import InferenceServicer
from headway.rpc.config import parse_config
from headway.rpc.host import hosting, run
from headway.store.answers import AnswerStore
from headway.store.api_keys import ApiKeyStore
from headway.store.plans import PlanStore
from headway.store.quarantine import QuarantineStore
from headway.v1 import inference_pb2_grpc

_LOOKS_EVERY_S = 0.2
_LISTENS_AFTER_S = 10.0  # even without a plan, to tell clients so


async def main(config: GatewayConfig) -> None:
    message_limits = MessageLimits(tenant_of=lambda metadata: service.tenant_of(metadata))  # noqa: PLW0108 - made below
    async with hosting(
        "gateway", config, is_public=True, max_request_bytes=config.max_body_bytes, interceptors=[message_limits]
    ) as host:
        served_models = ServedModels(PlanStore(host.database))
        router = RouterLinks(host.peers, gateway_id=host.member_id)
        quarantine = Quarantine(time.monotonic, QuarantineStore(host.database))
        generator = Generator(
            router=router,
            links=Links(TokenStreamClient(host.peers)),
            quarantine=quarantine,
            resume_timeout_s=config.resume_timeout_s,
        )
        inferrer = Inferrer(
            router=router,
            workers=InferClient(host.peers),
            quarantine=quarantine,
            resume_timeout_s=config.resume_timeout_s,
            answer_overhead_s=config.answer_overhead_s,
        )
        key_ring = KeyRing(ApiKeyStore(host.database), wall_clock=time.time, clock=time.monotonic)
        await key_ring.catch_up()
        with suppress(UnavailableError):  # it watches, and says so
            await quarantine.catch_up()
        service = GatewayService(
            config,
            peers=host.peers,
            served_models=served_models,
            generator=generator,
            inferrer=inferrer,
            key_ring=key_ring,
            answers=AnswerStore(host.database),
            tracing=host.tracing,
        )
        http = HttpServer(
            make_app(service),
            host=config.http_host,
            port=config.http_port,
            grace_s=config.drain_s,
            shares_port=config.shares_port,
        )
        servicer = InferenceServicer(service, peers=host.peers)
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(servicer, host.server)

        async def listen() -> None:
            """Where another gateway has the same address, it answers until this one has read its models."""
            if config.shares_port:
                await served_models.wait_for_plan(timeout_s=_LISTENS_AFTER_S)
            await http.run_forever()

        async def get_ready() -> None:
            """Ready once some model can be answered, or if it may where none is planned, and from then on: later
            requests are told what is missing."""
            while not service.can_answer() and not (
                config.ready_without_plan and await served_models.follower.finds_none()
            ):
                await host.peers.wait_for_change(timeout_s=_LOOKS_EVERY_S)
            await host.show_ready(is_ready=True)

        host.spawn(served_models.follower.watch(), name="watch-plan")
        host.spawn(key_ring.watch(), name="watch-keys")
        host.spawn(quarantine.watch(), name="watch-quarantine")
        host.spawn(listen(), name="http")

        async def stop() -> None:
            http.leave()
            await asyncio.sleep(config.leave_s)
            await asyncio.gather(http.stop(), host.server.stop(config.drain_s))
            await generator.close()
            await router.close()

        host.spawn(get_ready(), name="get-ready")
        await host.serve(on_stop=stop, is_ready_at_once=False)


if __name__ == "__main__":
    run(main(parse_config(GatewayConfig, prog="headway-gateway")))
