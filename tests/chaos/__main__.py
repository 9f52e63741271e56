"""`make chaos`: a storm over a stack of emulated devices, which a seed gives, and what must not have been."""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.chaos.storm import Storm, draw, storming

USUAL_STANDSTILL = "for 12.5 s"  # almost long enough for being taken for dead


def chosen(storm: Storm, *, only: str) -> list[str]:
    """The names of what is drawn from."""
    if only:
        return [name for name in storm.happenings() | storm.standstills() if only in name]
    return [*storm.happenings(), *(name for name in storm.standstills() if name.endswith(USUAL_STANDSTILL))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="draws what happens")
    parser.add_argument("--minutes", type=float, default=10.0, help="nothing more happens after so long")
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="draw from what has this in its name: 'stop ' for every process that stands still, up to 60 s",
    )
    options = parser.parse_args()
    only = f" ONLY='{options.only}'" if options.only else ""
    print(f"This storm can be had again with SEED={options.seed}{only}.", flush=True)
    deadline_s = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as directory, storming(Path(directory)) as storm:
        for name in draw(options.seed, chosen(storm, only=options.only), num=10_000):
            if time.monotonic() > deadline_s:
                break
            storm.run([name])
            fault = storm.faults[-1]
            print(f"{fault.name}: well again after {fault.ended_s - fault.began_s:.1f} s", flush=True)
        violations = storm.violations()
        outcomes = Counter(str(asked.outcome) for asked in storm.crowd.requests)
    print(f"{len(storm.faults)} happenings; requests: {dict(outcomes)}; violations: {len(violations)}")
    print("\n".join(violations))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
