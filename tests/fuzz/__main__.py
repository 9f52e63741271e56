"""`make fuzz`: cases of every target, guided by coverage; or `python -m tests.fuzz TARGET FILE`: one case again."""

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz.coverage import Outcome, fuzz, instrumented

with instrumented():
    from tests.fuzz.targets import TARGETS

_ROOT = Path(__file__).parents[2] / "build" / "fuzz"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", choices=sorted(TARGETS), help="only this one")
    parser.add_argument("file", nargs="?", type=Path, help="only this case")
    parser.add_argument("--cases", type=int, default=10_000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, default=_ROOT, help="keeps the corpora, and what was not answered")
    options = parser.parse_args()
    targets = [TARGETS[options.target]] if options.target else list(TARGETS.values())
    if options.file is not None:
        targets[0](options.file.read_bytes())
        return 0
    for target in targets:
        for content in target.plain:
            target.read(content)  # else cases would begin with what is refused
    num_cases = -(-options.cases // len(targets))
    outcomes = []
    for target in targets:
        outcome = fuzz(target, num_cases=num_cases, seed=options.seed, directory=options.directory / target.name)
        outcomes.append(outcome)
        print(_line(outcome, num_cases), flush=True)
    total_s = sum(outcome.cpu_s for outcome in outcomes) + time.process_time()
    print(f"{num_cases * len(targets)} cases in {total_s:.0f} CPU seconds, {time.process_time():.0f} of them to begin")
    for outcome in outcomes:
        if outcome.fault:
            print(f"\n--- {outcome.name}; the case is under {options.directory / outcome.name}\n{outcome.fault}")
    return 1 if any(outcome.fault for outcome in outcomes) else 0


def _line(outcome: Outcome, num_cases: int) -> str:
    told = "FAULT" if outcome.fault else "ok"
    return (
        f"{outcome.name:18} {num_cases:8} cases  {outcome.num_kept:5} kept  {outcome.cpu_s:7.1f} CPU s"
        f"  {outcome.peak_mib:6.0f} MiB  {told}"
    )


if __name__ == "__main__":
    sys.exit(main())
