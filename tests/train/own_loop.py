"""A loop of a user's own around a module that runs by a plan; see test_parallel. Prints losses and this rank's
parameters' sums as JSON."""

import json
import sys
from pathlib import Path

import torch

import headway
from tests.train.models import Gpt, inputs

BATCH, NUM_STEPS, RATE = 8, 3, 0.05


def model() -> Gpt:
    torch.manual_seed(0)
    return Gpt()


def main(plan_path: Path, out: Path) -> None:
    module = model()
    parallel = headway.parallelize(module, headway.read_plan(plan_path), tuple(inputs(module, 2).values()))
    optimizer = torch.optim.SGD(parallel.parameters(), lr=RATE)
    losses = []
    for step in range(NUM_STEPS):
        losses.append(parallel.step(*inputs(module, BATCH, seed=step).values()))
        optimizer.step()
    weights = {name: parameter.flatten().tolist() for name, parameter in parallel.named_parameters()}
    rank = parallel.rank
    (out / f"{rank}.json").write_text(json.dumps({"losses": losses, "weights": weights}))
    parallel.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
