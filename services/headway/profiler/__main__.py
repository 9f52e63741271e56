"""Runs the profiler process: `python -m headway.profiler`."""

import headway.rpc  # noqa: F401 - gRPC's settings, before gRPC
from headway.core.catalogue import read_catalogue
from headway.core.profile import Profile
from headway.profiler.captures import Captures
from headway.profiler.hardware.service import HardwareService
from headway.profiler.imports import ImportedProfiles
from headway.profiler.jobs.bench_workers import BenchWorkers
from headway.profiler.jobs.jobs import MeasuringJobs
from headway.profiler.jobs.store import JobStore
from headway.profiler.machines import Machines
from headway.profiler.profile_store import ProfileStore
from headway.profiler.service import ProfilerService
from headway.profiler.servicer import ProfilerServicer
from headway.rpc.catalogue_config import CatalogueConfig
from headway.rpc.config import parse_config
from headway.rpc.host import hosting, run
from headway.store.documents import Documents
from headway.store.hardware import HardwareTimings
from headway.store.schema import PROFILE
from headway.v1 import profiler_pb2_grpc


async def main(config: CatalogueConfig) -> None:
    catalogue = read_catalogue(config.catalogue)
    async with hosting("profiler", config) as host:
        machines = Machines()
        imported = ImportedProfiles(host.database, catalogue=catalogue)
        profiles = Documents(host.database, PROFILE, Profile)
        bench_workers = BenchWorkers(host.peers)
        jobs = MeasuringJobs(bench_workers, machines, JobStore(host.database), catalogue=catalogue)
        servicer = ProfilerServicer(
            ProfilerService(host.peers, profiles, machines=machines),
            imported=imported,
            captures=Captures(),
            jobs=jobs,
            profile_store=ProfileStore(host.database, bench_workers),
            hardware=HardwareService(bench_workers, machines, HardwareTimings(host.database)),
        )
        profiler_pb2_grpc.add_ProfilerServiceServicer_to_server(servicer, host.server)
        host.spawn(jobs.resume(), name="resume-jobs")
        await host.serve(on_stop=jobs.stop)


if __name__ == "__main__":
    run(main(parse_config(CatalogueConfig, prog="headway-profiler")))
