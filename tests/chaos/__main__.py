"""`make chaos`: a storm over a stack of emulated devices, which a seed gives, and what must not have been."""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.chaos.applies import PAUSE_S
from tests.chaos.network import isolate
from tests.chaos.storm import Storm, draw, storming

USUAL_STANDSTILL = "for 12.5 s"  # almost long enough for being taken for dead
USUAL_PARTITION = "for 20 s"  # long enough
BY_CLOCK = ("stop ", "cut off ")  # that last as long as they say
IDLE_TARGET_S = 5.0


def chosen(storm: Storm, *, only: str, has_partitions: bool) -> list[str]:
    """The names of what is drawn from."""
    partitions = storm.partitions() if has_partitions else {}
    if only:
        return [name for name in storm.happenings() | storm.standstills() | partitions if only in name]
    return [
        *storm.happenings(),
        *(name for name in storm.standstills() if name.endswith(USUAL_STANDSTILL)),
        *(name for name in partitions if name.endswith(USUAL_PARTITION)),
    ]


def happen(storm: Storm, name: str) -> None:
    storm.run([name])
    fault = storm.faults[-1]
    told = f"{name}: well again after {fault.ended_s - fault.began_s:.1f} s"
    if name.startswith(BY_CLOCK):
        idle = storm.until_idle()
        told += f", and nothing under way {idle.after_s:.1f} s after the last request"
        if idle.after_s > IDLE_TARGET_S:
            told += f", later than after {IDLE_TARGET_S:g} s; the last were {', '.join(idle.last)}"
    print(told, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="draws what happens")
    parser.add_argument("--minutes", type=float, default=10.0, help="nothing more happens after so long")
    parser.add_argument("--clients", type=int, default=3, help="that ask all the time")
    parser.add_argument("--pause", type=float, default=PAUSE_S, help="seconds between two plans that are applied")
    parser.add_argument("--once", action="store_true", help="everything once, however long it takes")
    parser.add_argument("--most", type=int, default=10_000, help="so many are drawn at most")
    parser.add_argument("--first", nargs="*", default=[], metavar="NAME", help="what happens before")
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="draw from what has this in its name: 'stop ' for every process that stands still, up to 60 s; "
        "'cut off ' for every one whose network falls silent",
    )
    options = parser.parse_args()
    why_not = isolate()
    if why_not:
        print(f"No process is cut off: {why_not}.")
    only = f" ONLY='{options.only}'" if options.only else ""
    print(f"This storm can be had again with SEED={options.seed}{only}.", flush=True)
    deadline_s = time.monotonic() + 60 * options.minutes
    with (
        tempfile.TemporaryDirectory() as directory,
        storming(Path(directory), num_clients=options.clients, pause_s=options.pause) as storm,
    ):
        names = chosen(storm, only=options.only, has_partitions=not why_not)
        drawn = draw(options.seed, names, num=len(names) if options.once else options.most)
        for name in options.first + drawn:
            if time.monotonic() > deadline_s and not options.once and name not in options.first:
                break
            if why_not and name in storm.partitions():
                continue
            happen(storm, name)
        violations = storm.violations()
        logs = storm.logs() if violations else ""
        outcomes = Counter(str(asked.outcome) for asked in storm.crowd.requests)
        applies = Counter("acknowledged" if each.is_acknowledged else "failed" for each in storm.applies.done)
    print(f"{len(storm.faults)} happenings; requests: {dict(outcomes)}; plans that were applied: {dict(applies)}")
    print(f"violations: {len(violations)}", *violations, logs, sep="\n")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
