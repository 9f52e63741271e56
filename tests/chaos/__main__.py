"""`make chaos`: a storm over a stack of emulated devices, which a seed gives, and what must not have been."""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.chaos.storm import draw, storming


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="draws what happens")
    parser.add_argument("--minutes", type=float, default=10.0, help="nothing more happens after so long")
    options = parser.parse_args()
    print(f"This storm can be had again with SEED={options.seed}.", flush=True)
    deadline_s = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as directory, storming(Path(directory)) as storm:
        for name in draw(options.seed, list(storm.happenings()), num=10_000):
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
