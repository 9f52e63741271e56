"""The device that a rank computes on."""

import os
from socket import gethostname

import torch
import torch.distributed as dist

from headway.core.errors import FailedPreconditionError

CPU = torch.device("cpu")


def rank_device(kind: str, place: int) -> torch.device:
    """Readies a device for this process.

    Args:
        kind: 'cpu' or 'cuda'.
        place: of the rank among those of its machine that see the same GPUs; more ranks than GPUs share these.

    Raises:
        FailedPreconditionError: torch finds no GPU.
    """
    if kind == "cpu":
        return CPU
    count = torch.cuda.device_count()
    if not count:
        lacks = "and torch finds none" if torch.version.cuda else f"and torch {torch.__version__} is for CPUs alone"
        raise FailedPreconditionError(
            f"Ranks are to compute on GPUs, {lacks} on {gethostname()}.",
            hint="Let the job say device: cpu, or start it where GPUs are.",
            field="device",
        )
    device = torch.device("cuda", place % count)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it torch calls products not deterministic
    torch.backends.cudnn.allow_tf32 = False  # float32 is float32, as it is in products
    torch.cuda.set_device(device)
    return device


def distinct_devices(store: dist.Store, rank: int, world: int, device: torch.device) -> int:
    """How many GPUs the ranks of a gang compute on; all ranks ask.

    Args:
        store: this gang's alone.
    """
    store.set(f"device {rank}", str(torch.cuda.get_device_properties(device).uuid))
    return len({store.get(f"device {each}") for each in range(world)})
