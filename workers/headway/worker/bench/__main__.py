"""The process `python -m headway.worker.bench`: it reads an order on standard input and writes one timing a line to
standard output.
"""

import json
import os
import sys
import time

import torch

from headway.backends.contest import Contest, rounds
from headway.core.codec import from_document, to_document
from headway.core.timing import TimingOrder
from headway.observe.parentage import end_with_parent
from headway.worker.bench.bench import Bench


def main() -> None:
    end_with_parent()
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an operator prints is no answer
        order = from_document(TimingOrder, json.load(sys.stdin))
        torch.set_num_threads(order.num_threads)
        device = torch.device(order.device)
        bench = Bench(device, memory_bytes=order.memory_bytes)
        contest = Contest(device, memory_bytes=order.memory_bytes, num_threads=order.num_threads)
        for first, programs in rounds(order.programs):
            started_s = time.perf_counter()
            if programs[0].placement is None:
                timings = [bench.time(programs[0], number=first)]
            else:
                timings = contest.times(programs, first=first)
            for timing in timings:
                answers.write(json.dumps(to_document(timing)) + "\n")
            answers.flush()
            time.sleep((time.perf_counter() - started_s) * (1 / order.share - 1))


if __name__ == "__main__":
    main()
