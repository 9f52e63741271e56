"""The process `python -m headway.worker.bench`: it reads an order on standard input and writes one timing a line to
standard output.
"""

import json
import os
import sys
import time

import torch

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
        bench = Bench(torch.device(order.device), memory_bytes=order.memory_bytes)
        for number, program in enumerate(order.programs):
            started_s = time.perf_counter()
            timing = bench.time(program, number=number)
            answers.write(json.dumps(to_document(timing)) + "\n")
            answers.flush()
            time.sleep((time.perf_counter() - started_s) * (1 / order.share - 1))


if __name__ == "__main__":
    main()
