"""`python -m headway.controller`: the controller process."""

import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import headway.rpc  # noqa: F401 - gRPC's settings, before gRPC
from headway.controller.api_keys import ApiKeys
from headway.controller.cell_processes import CellProcesses
from headway.controller.clients.cell import CellClient
from headway.controller.clients.planner import PlannerClient
from headway.controller.clients.profiler import ProfilerClient
from headway.controller.clients.router import RouterClient
from headway.controller.clients.worker import WorkerControlClient
from headway.controller.config import ControllerConfig
from headway.controller.deployment_file import read_deployment_file
from headway.controller.desired import DesiredPlan
from headway.controller.idle_models import IdleModels
from headway.controller.kubernetes.api import KubernetesApi
from headway.controller.kubernetes.cell_pod import CellTemplate
from headway.controller.kubernetes.fetch_job import FetchTemplate
from headway.controller.kubernetes.model_deployments import ModelDeployments
from headway.controller.kubernetes.model_fetches import ModelFetches
from headway.controller.kubernetes.model_volume import ModelVolume
from headway.controller.kubernetes.pool_scaler import PoolScaler
from headway.controller.kubernetes.worker_pools import WorkerPools
from headway.controller.launchers.local import LocalLauncher
from headway.controller.machine import read_machine
from headway.controller.placements import Placements
from headway.controller.process import ProcessRecord
from headway.controller.profile_import import ProfileImport
from headway.controller.replanning import Replanning
from headway.controller.replanning_loop import ReplanningLoop
from headway.controller.service import ControllerService
from headway.controller.servicer import ControllerServicer
from headway.controller.stack import ChildSettings, resolve_workers, wanted_processes
from headway.controller.supervisor import Supervisor
from headway.controller.worker_pool import WorkerPool
from headway.core.catalogue import read_catalogue
from headway.core.deployment import Deployment
from headway.core.errors import HeadwayError, InvalidArgumentError
from headway.core.plan.placement import PlacementPlan
from headway.observe.process_start import has_ended, own_run
from headway.rpc.config import parse_config
from headway.rpc.host import Host, hosting, run
from headway.store.api_keys import ApiKeyStore
from headway.store.controller_lease import ControllerLease
from headway.store.documents import Documents
from headway.store.kept import KEPT_FILE, KeptData, recover
from headway.store.plan_documents import plan_documents
from headway.store.plans import PlanStore
from headway.store.replanning import ReplanningStore
from headway.store.schema import DEPLOYMENT, PLACEMENT, PROCESS
from headway.store.traffic import TrafficStore
from headway.v1 import controller_pb2_grpc

log = logging.getLogger(__name__)

Template = TypeVar("Template", CellTemplate, FetchTemplate)


async def main(config: ControllerConfig) -> None:
    async with hosting("controller", config) as host:
        lease = ControllerLease(host.database, run=own_run(), has_ended=has_ended)
        async with host.standing_by():
            is_at_work = await lease.acquire(until=host.stopping)
        if not is_at_work:
            return
        deployments = Documents(host.database, DEPLOYMENT, Deployment)
        processes: Supervisor | CellProcesses
        pools: WorkerPools | None = None
        kept_path: Path | None = None
        if config.deployment is None:
            kept_path = config.state_dir / KEPT_FILE
            await recover(host.database, kept_path)
            deployment = await read_deployment(deployments)
            processes = build_supervisor(config, host, deployment, lease=lease)
        else:
            deployment, stands = await read_cluster_deployment(
                config.deployment, deployments, has_models=not config.models_from_resources
            )
            processes = CellProcesses(
                host.peers,
                client=CellClient(host.peers),
                num_workers=lambda: deployment.workers.count if pools is None else pools.num_workers() or 1,
                has_workers=stands,
                may_act=lease.may_act,
            )
        kept = KeptData(host.database, on_restored=processes.record_all, path=kept_path)
        await kept.begin()
        database = replace(host.database, writing=kept.writing)
        plans, profiler = PlanStore(database), ProfilerClient(host.peers)
        planner, stored = PlannerClient(host.peers), plan_documents(database, PLACEMENT, PlacementPlan)
        desired = DesiredPlan(
            plans,
            planner=planner,
            limits=deployment.limits,
            placements=stored,
            profile_import=build_profile_import(deployment, profiler),
        )
        pool = WorkerPool(
            WorkerControlClient(host.peers, epoch=lease.epoch), plans=plans, end_process=processes.end_run
        )
        placements = Placements(stored, planner=planner, desired=desired, pool=pool, limits=deployment.limits)
        service = ControllerService(
            deployment,
            processes=processes,
            pool=pool,
            desired=desired,
            profiler=profiler,
            plans=plans,
            deployments=Documents(database, DEPLOYMENT, Deployment),
            peers=host.peers,
            own_member=lambda: host.member,
            data_faults=lambda: kept.faults,
        )
        replanning = Replanning(
            planner=planner,
            placements=placements,
            desired=desired,
            pool=pool,
            traffic=TrafficStore(host.database),
            apply=service.apply,
            catalogue=read_catalogue(config.catalogue),
            answer_overhead_s=deployment.answer_overhead_s,
            queue_policy=deployment.queue_policy,
        )
        replanning_loop = ReplanningLoop(
            ReplanningStore(database), replanning=replanning, is_ready=lambda: service.status().ready
        )
        idle_models = IdleModels(service, plans=plans, view=RouterClient(host.peers).view)

        async def end() -> None:
            await lease.end()
            host.stopping.set()

        servicer = ControllerServicer(
            service,
            placements=placements,
            replanning=replanning_loop,
            idle_models=idle_models,
            api_keys=ApiKeys(ApiKeyStore(database), clock=time.time),
            on_shutdown=end,
        )
        controller_pb2_grpc.add_ControllerServiceServicer_to_server(servicer, host.server)
        host.spawn(lease.keep(on_loss=host.stopping.set), name="keep-controller-lease")
        host.spawn(kept.keep(), name="keep-data")
        await service.start()
        host.spawn(service.supervise_forever(), name="supervise")
        host.spawn(service.reconcile_forever(), name="reconcile")
        host.spawn(service.profile_forever(), name="profile")
        host.spawn(replanning_loop.keep(), name="re-plan")
        host.spawn(idle_models.keep(), name="idle-models")
        if config.models_from_resources:
            api = build_kubernetes_api(config, lease)
            pools = spawn_resources(
                config, host, api=api, service=service, idle_models=idle_models, deployment=deployment
            )
        await host.serve(on_stop=service.close)


async def read_deployment(deployments: Documents[Deployment]) -> Deployment:
    """Reads the deployment that the user wants. Shares of the machine are worked out once and written back: a later
    controller must come to the same commands, or it would not adopt the workers.
    """
    try:
        deployment = await deployments.get()
        if deployment is None:
            raise SystemExit("headway-controller: Redis holds no deployment. `headway up` writes one.")
        resolved = replace(deployment, workers=resolve_workers(deployment.workers, machine=read_machine()))
    except HeadwayError as error:
        raise SystemExit(f"headway-controller: {error}") from None
    if resolved != deployment:
        await deployments.put(resolved, is_stand_in=True)  # it says nothing new
    return resolved


async def read_cluster_deployment(
    path: Path, deployments: Documents[Deployment], *, has_models: bool
) -> tuple[Deployment, bool]:
    """Reads the deployment of a file, and whether what was planned last, or the placement that was applied since,
    stands: it does where the file is the one that it was planned for, or has no models. A plan for models that are
    resources is changed by those."""
    try:
        wanted = read_deployment_file(path, has_models=has_models)
    except HeadwayError as error:
        raise SystemExit(f"headway-controller: {error}") from None
    try:
        stored = await deployments.get()
    except InvalidArgumentError as error:
        log.warning("what was deployed before cannot be read: %s", error)
        stored = None
    if stored is not None and stored.source == wanted.source:
        return stored, True
    if stored is not None and not has_models:
        wanted = replace(wanted, models=stored.models, placement_id=stored.placement_id)
    await deployments.put(wanted)
    return wanted, not has_models


def build_profile_import(deployment: Deployment, profiler: ProfilerClient) -> ProfileImport | None:
    if not deployment.stage_profiles:
        return None
    device = deployment.workers.emulated[0].name  # others are scaled from it
    return ProfileImport(Path(deployment.stage_profiles), hardware=device, profiler=profiler)


def spawn_resources(
    config: ControllerConfig,
    host: Host,
    *,
    api: KubernetesApi,
    service: ControllerService,
    idle_models: IdleModels,
    deployment: Deployment,
) -> WorkerPools | None:
    """Starts to serve what resources declare; returns the pools where there are to be any."""
    pools: WorkerPools | None = None
    if config.cell_template is not None:
        view = RouterClient(host.peers).view
        scaler = PoolScaler(service=service, view=view, refusals=lambda: idle_models.refusals)
        cells = read_template(CellTemplate, config.cell_template)
        pools = WorkerPools(api, service=service, template=cells, scaler=scaler, is_emulated=deployment.is_emulated)
        host.spawn(scaler.watch_forever(), name="watch-demand")
        host.spawn(pools.pools.follow(), name="watch-pools")
        host.spawn(pools.pods.follow(), name="watch-cells")
        host.spawn(pools.reconcile_forever(), name="worker-pools")
    volume = ModelVolume(directory=config.models_dir, claim=config.models_claim)
    template = None if config.fetch_template is None else read_template(FetchTemplate, config.fetch_template)
    fetches = ModelFetches(api, template=template, volume=volume)
    if template is not None:
        host.spawn(fetches.jobs.follow(), name="watch-fetches")
    declared = ModelDeployments(
        api,
        service=service,
        refusals=lambda: idle_models.refusals,
        volume=volume,
        fetches=fetches,
        num_workers=(lambda: deployment.workers.count) if pools is None else pools.num_workers,
        is_emulated=deployment.is_emulated,
    )
    host.spawn(declared.watch.follow(), name="watch-models")
    host.spawn(declared.reconcile_forever(), name="model-resources")
    return pools


def build_kubernetes_api(config: ControllerConfig, lease: ControllerLease) -> KubernetesApi:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not port:
        raise SystemExit(
            "headway-controller: --models-from-resources works in a pod of Kubernetes only: KUBERNETES_SERVICE_HOST "
            "and KUBERNETES_SERVICE_PORT are not set."
        )
    try:
        return KubernetesApi(f"https://{host}:{port}", directory=config.service_account_dir, may_act=lease.may_act)
    except HeadwayError as error:
        raise SystemExit(f"headway-controller: {error}") from None


def read_template(kind: type[Template], path: Path) -> Template:
    """Of cells, or of jobs that fetch models."""
    try:
        return kind.read(path)
    except HeadwayError as error:
        raise SystemExit(f"headway-controller: {error}") from None


def build_supervisor(
    config: ControllerConfig, host: Host, deployment: Deployment, *, lease: ControllerLease
) -> Supervisor:
    settings = ChildSettings.of(config)
    return Supervisor(
        wanted_processes(deployment, settings=settings),
        launcher=LocalLauncher(config.state_dir / "logs"),
        records=Documents(host.database, PROCESS, ProcessRecord),
        membership=host.membership,
        peers=host.peers,
        may_act=lease.may_act,
    )


if __name__ == "__main__":
    run(main(parse_config(ControllerConfig, prog="headway-controller")))
