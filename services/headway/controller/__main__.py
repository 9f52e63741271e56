"""`python -m headway.controller`: the controller process."""

from dataclasses import replace

from headway.controller.clients.planner import PlannerClient
from headway.controller.clients.profiler import ProfilerClient
from headway.controller.clients.worker import WorkerClient
from headway.controller.config import ControllerConfig
from headway.controller.desired import DesiredPlan
from headway.controller.fleet import Fleet
from headway.controller.launchers.local import LocalLauncher
from headway.controller.machine import read_machine
from headway.controller.process import ProcessRecord
from headway.controller.service import ControllerService
from headway.controller.servicer import ControllerServicer
from headway.controller.stack import ChildSettings, resolve_workers, wanted_processes
from headway.controller.supervisor import Supervisor
from headway.core.deployment import Deployment
from headway.rpc.config import parse_config
from headway.rpc.host import Host, hosting, run
from headway.store.documents import Documents
from headway.store.membership import Membership
from headway.store.plans import PlanStore
from headway.store.schema import DEPLOYMENT, PROCESS
from headway.v1 import controller_pb2_grpc


async def main(config: ControllerConfig) -> None:
    async with hosting("controller", config) as host:
        deployments = Documents(host.database, DEPLOYMENT, Deployment)
        deployment = await read_deployment(deployments)
        supervisor = build_supervisor(config, host, deployment)
        plans = PlanStore(host.database)
        service = ControllerService(
            deployment,
            supervisor=supervisor,
            fleet=Fleet(WorkerClient(host.peers), plans=plans, end_process=supervisor.end_run),
            desired=DesiredPlan(plans, planner=PlannerClient(host.peers), limits=deployment.limits),
            profiler=ProfilerClient(host.peers),
            plans=plans,
            deployments=deployments,
            peers=host.peers,
            own_member=lambda: host.member,
        )
        servicer = ControllerServicer(service, on_shutdown=host.stopping.set)
        controller_pb2_grpc.add_ControllerServiceServicer_to_server(servicer, host.server)
        await service.start()
        host.spawn(service.supervise_forever(), name="supervise")
        host.spawn(service.reconcile_forever(), name="reconcile")
        host.spawn(service.profile_forever(), name="profile")
        await host.serve(on_stop=service.close)


async def read_deployment(deployments: Documents[Deployment]) -> Deployment:
    """What the user wants. Shares of the machine are worked out once and written back: a later controller must come
    to the same commands, or it would not adopt the workers."""
    deployment = await deployments.get()
    if deployment is None:
        raise SystemExit("headway-controller: Redis holds no deployment. `headway up` writes one.")
    resolved = replace(deployment, workers=resolve_workers(deployment.workers, machine=read_machine()))
    if resolved != deployment:
        await deployments.put(resolved)
    return resolved


def build_supervisor(config: ControllerConfig, host: Host, deployment: Deployment) -> Supervisor:
    settings = ChildSettings(
        redis_url=config.redis_url,
        auth_token=config.auth_token,
        namespace=config.namespace,
        bind_host=config.bind_host,
        advertise_host=config.advertise_host,
    )
    return Supervisor(
        wanted_processes(deployment, settings=settings),
        launcher=LocalLauncher(config.state_dir / "logs"),
        records=Documents(host.database, PROCESS, ProcessRecord),
        membership=Membership(host.database),
        peers=host.peers,
    )


if __name__ == "__main__":
    run(main(parse_config(ControllerConfig, prog="headway-controller")))
