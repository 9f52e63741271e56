"""Measures this machine in a process of its own: reads a request on standard input, writes progress and the profile to
standard output."""

import asyncio
import json
import os
import sys

from headway.core.codec import from_document, to_document
from headway.core.errors import HeadwayError, InternalError
from headway.core.fault import Fault
from headway.core.hardware.calibration import HardwareRequest
from headway.profiler.hardware.hardware import profile_hardware
from headway.profiler.hardware.own import OwnCalibrator
from headway.store.hardware import HardwareTimings
from headway.store.redis import Database


async def main() -> None:
    try:
        request = from_document(HardwareRequest, json.load(sys.stdin))
        database = Database.connect(request.redis_url, namespace=request.namespace)
        try:
            own = OwnCalibrator(device=request.device, num_threads=request.num_threads)
            async for progress in profile_hardware(request.wanted, calibrator=own, timings=HardwareTimings(database)):
                _answer(progress)
        finally:
            await database.close()
    except BrokenPipeError:
        os._exit(1)  # whoever asked has gone
    except HeadwayError as error:
        _answer({"error": Fault.of(error)})
    except Exception as error:  # noqa: BLE001 - root of the process
        fault = InternalError(f"{type(error).__name__}: {error}", hint="This is a fault of Headway.")
        _answer({"error": Fault.of(fault)})


def _answer(value: object) -> None:
    print(json.dumps(to_document(value)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
