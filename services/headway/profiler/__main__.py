"""`python -m headway.profiler`: the profiler process."""

from headway.core.catalogue import read_catalogue
from headway.core.profile import Profile
from headway.profiler.captures import Captures
from headway.profiler.imports import ImportedProfiles
from headway.profiler.service import ProfilerService
from headway.profiler.servicer import ProfilerServicer
from headway.rpc.catalogue_config import CatalogueConfig
from headway.rpc.config import parse_config
from headway.rpc.host import hosting, run
from headway.store.documents import Documents
from headway.store.schema import PROFILE
from headway.v1 import profiler_pb2_grpc


async def main(config: CatalogueConfig) -> None:
    catalogue = read_catalogue(config.catalogue)
    async with hosting("profiler", config) as host:
        service = ProfilerService(host.peers, Documents(host.database, PROFILE, Profile))
        servicer = ProfilerServicer(
            service, imported=ImportedProfiles(host.database, catalogue=catalogue), captures=Captures()
        )
        profiler_pb2_grpc.add_ProfilerServiceServicer_to_server(servicer, host.server)
        await host.serve()


if __name__ == "__main__":
    run(main(parse_config(CatalogueConfig, prog="headway-profiler")))
