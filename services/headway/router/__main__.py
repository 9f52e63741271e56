"""Starts the process `headway-router`."""

from uuid import uuid4

import headway.rpc  # noqa: F401 - gRPC's settings, before gRPC
from headway.router.attainment import Attainment
from headway.router.config import RouterConfig
from headway.router.maintenance import Maintenance
from headway.router.service import RouterService
from headway.router.servicer import RouterServicer
from headway.router.traffic import TrafficRecord
from headway.rpc.config import parse_config
from headway.rpc.followers import Followers
from headway.rpc.host import hosting, run
from headway.store.plans import PlanStore
from headway.store.traffic import TrafficStore
from headway.v1 import router_pb2_grpc


async def main(config: RouterConfig) -> None:
    async with hosting("router", config) as host:
        attainment, instance_id = Attainment(host.database), uuid4().hex[:8]
        recorded = TrafficStore(
            host.database, retention_s=config.traffic_retention_s, max_requests=config.traffic_max_requests
        )
        traffic = TrafficRecord(recorded, run=instance_id)
        service = RouterService(
            config,
            peers=host.peers,
            plans=PlanStore(host.database),
            attainment=attainment,
            traffic=traffic,
            instance_id=instance_id,
        )
        maintenance = Maintenance(config, service, peers=host.peers)
        workers = Followers(
            host.peers, "worker", follow=service.follow, lose=service.lose, accepts=lambda member: member.is_leader
        )
        router_pb2_grpc.add_RouterServiceServicer_to_server(RouterServicer(service, tracing=host.tracing), host.server)
        host.spawn(workers.run(), name="follow-workers")
        await maintenance.settle()
        host.spawn(service.follower.watch(), name="follow-plan")
        host.spawn(maintenance.maintain(), name="maintenance")
        host.spawn(traffic.keep(), name="keep-traffic")
        await host.serve(on_stop=maintenance.close)


if __name__ == "__main__":
    run(main(parse_config(RouterConfig, prog="headway-router")))
