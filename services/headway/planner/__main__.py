"""Runs the planner process: `python -m headway.planner`."""

from headway.core.catalogue import read_catalogue
from headway.core.hardware.profile import LinkProfile
from headway.core.profile import Profile
from headway.core.stage_profile import StageProfile
from headway.planner.jobs import PlacementJobs
from headway.planner.service import PlannerService
from headway.planner.servicer import PlannerServicer
from headway.rpc.catalogue_config import CatalogueConfig
from headway.rpc.config import parse_config
from headway.rpc.host import hosting, run
from headway.store.documents import Documents
from headway.store.schema import HARDWARE_LINKS, PROFILE, STAGE_PROFILE
from headway.v1 import planner_pb2_grpc


async def main(config: CatalogueConfig) -> None:
    catalogue = read_catalogue(config.catalogue)
    async with hosting("planner", config) as host:
        link_profiles = Documents(host.database, HARDWARE_LINKS, LinkProfile)
        service = PlannerService(
            Documents(host.database, PROFILE, Profile),
            stage_profiles=Documents(host.database, STAGE_PROFILE, StageProfile),
            link_profiles=link_profiles,
            catalogue=catalogue,
        )
        servicer = PlannerServicer(service, placements=PlacementJobs(link_profiles, catalogue=catalogue))
        planner_pb2_grpc.add_PlannerServiceServicer_to_server(servicer, host.server)
        await host.serve()


if __name__ == "__main__":
    run(main(parse_config(CatalogueConfig, prog="headway-planner")))
