"""`make test-flaky`: the suite in an order drawn from a seed, and what starts processes again and again.

Nothing is run a second time because it failed: one failure anywhere is a failure.
"""

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_NUM_REPEATS = 5
_PYTEST = (sys.executable, "-m", "pytest", "-p", "tests.order", "-n", "3", "--dist", "loadfile")
# It ends with the process that started it, however that ends: nobody holds the other end of the pipe any more.
_BUSY = "import select, sys\nwhile not select.select([sys.stdin], [], [], 0)[0]: sum(range(100_000))"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="of the order; drawn and printed unless given")
    parser.add_argument("--load", action="store_true", help="beside a process that keeps busy for each core")
    parser.add_argument("paths", nargs="*", default=["tests"])
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    replay = f"make test-flaky SEED={seed}{' LOAD=1' if arguments.load else ''} TESTS='{' '.join(arguments.paths)}'"
    print(f"The order can be had again with: {replay}", flush=True)
    with cpu_load(os.cpu_count() or 1 if arguments.load else 0):
        failed = [] if run(arguments.paths, seed=seed) else ["the whole"]
        for number in range(1, _NUM_REPEATS + 1):
            print(f"Files that start processes, {number} of {_NUM_REPEATS}", flush=True)
            if not run(["--only-processes", *arguments.paths], seed=seed + number):
                failed.append(f"processes, {number} of {_NUM_REPEATS}")
    print(f"Failed: {'; '.join(failed)}. Again: {replay}" if failed else f"All passed with SEED={seed}.")
    return 1 if failed else 0


def run(arguments: list[str], *, seed: int) -> bool:
    """Whether every test of one run of pytest passed; there may be none that starts processes."""
    command = [*_PYTEST, "--no-loadscope-reorder", "-q", f"--order-seed={seed}", *arguments]
    return subprocess.run(command, check=False).returncode in (0, 5)


@contextmanager
def cpu_load(num_processes: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY], stdin=subprocess.PIPE) for _ in range(num_processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.communicate()


if __name__ == "__main__":
    sys.exit(main())
