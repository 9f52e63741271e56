"""Runs the planner process: `python -m headway.planner`."""

import asyncio
import sys

import headway.rpc  # noqa: F401 - gRPC's settings, before gRPC
from headway.core.catalogue import read_catalogue
from headway.core.hardware.profile import LinkProfile
from headway.core.profile import Profile
from headway.core.stage_profile import StageProfile
from headway.planner.config import PlannerConfig
from headway.planner.jobs.bounds import SearchBounds
from headway.planner.jobs.jobs import SearchJobs
from headway.planner.jobs.store import SearchStore
from headway.planner.placing import PlacementService
from headway.planner.service import PlannerService
from headway.planner.servicer import PlannerServicer
from headway.rpc.config import parse_config
from headway.rpc.host import Host, hosting, run
from headway.store.documents import Documents
from headway.store.schema import HARDWARE_LINKS, PROFILE, STAGE_PROFILE
from headway.v1 import planner_pb2_grpc


async def main(config: PlannerConfig) -> None:
    catalogue = read_catalogue(config.catalogue)
    async with hosting("planner", config) as host:
        link_profiles = Documents(host.database, HARDWARE_LINKS, LinkProfile)
        service = PlannerService(
            Documents(host.database, PROFILE, Profile),
            stage_profiles=Documents(host.database, STAGE_PROFILE, StageProfile),
            link_profiles=link_profiles,
            catalogue=catalogue,
        )
        placements = PlacementService(link_profiles, catalogue=catalogue)
        bounds = SearchBounds(max_processes=config.max_processes, ray=config.ray)
        jobs = SearchJobs(_store(config, host), num_at_once=config.searches_at_once, bounds=bounds)
        servicer = PlannerServicer(service, placements=placements, jobs=jobs)
        planner_pb2_grpc.add_PlannerServiceServicer_to_server(servicer, host.server)
        if config.searches_dir is None:  # else other commands' planners may be at work in the same directory
            host.spawn(jobs.resume(), name="resume-searches")
        if config.end_with_input:
            host.spawn(_end_with_input(host), name="end-with-input")
        await host.serve(on_stop=jobs.close)


def _store(config: PlannerConfig, host: Host) -> SearchStore:
    if config.searches_dir is not None:
        return SearchStore.in_files(config.searches_dir)
    return SearchStore.in_redis(host.database)


async def _end_with_input(host: Host) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    host.stopping.set()


if __name__ == "__main__":
    run(main(parse_config(PlannerConfig, prog="headway-planner")))
