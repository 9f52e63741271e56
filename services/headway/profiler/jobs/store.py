"""The jobs as they are kept in Redis."""

import asyncio
from collections.abc import Iterable

from headway.core.cluster import Hardware
from headway.core.measuring_job import MeasuringJob, MeasuringWork
from headway.core.model_profile import Measurement, ModelProfile, measurement_id
from headway.store.documents import Documents
from headway.store.redis import Database
from headway.store.schema import MEASUREMENT, MEASURING_JOB, MEASURING_WORK, MODEL_PROFILE


class JobStore:
    """UnavailableError from every method while Redis is away."""

    def __init__(self, database: Database) -> None:
        self.jobs = Documents(database, MEASURING_JOB, MeasuringJob)
        self.works = Documents(database, MEASURING_WORK, MeasuringWork)
        self.measurements = Documents(database, MEASUREMENT, Measurement)
        self.profiles = Documents(database, MODEL_PROFILE, ModelProfile)

    async def known(self, programs: Iterable[str], hardware: Hardware) -> dict[str, Measurement]:
        """What was measured of programs, which are content hashes, on equal hardware with equal versions."""
        hashes = list(programs)
        found = await asyncio.gather(*(self.measurements.get(measurement_id(program, hardware)) for program in hashes))
        return {
            program: measurement for program, measurement in zip(hashes, found, strict=True) if measurement is not None
        }
