"""Stands for `headway.worker.calibration`: answers at once, as the environment variable FAKE_CALIBRATION says.

`die:N` is killed after N timings, `nan` answers with a timing that cannot be.
"""

import json
import os
import signal
import sys

HARDWARE = {"device": "cpu", "name": "a CPU", "num_threads": 1, "memory_bytes": 1, "software": {"torch": "2"}}


def main() -> None:
    request = json.load(sys.stdin)
    way, _, number = os.environ.get("FAKE_CALIBRATION", "").partition(":")
    hardware = HARDWARE | {"software": {"torch": os.environ.get("FAKE_TORCH", "2")}}
    print(json.dumps({"machine": {"hardware": hardware, "machine": "here", "cache_bytes": 1024}}), flush=True)
    for count, cell in enumerate(request.get("cells", [])):
        if way == "die" and count == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        seconds = float("nan") if way == "nan" else 1e-4 + cell["extents"][-1] * 1e-9
        print(json.dumps({"timing": {"cell": cell, "seconds": seconds}}), flush=True)


if __name__ == "__main__":
    main()
