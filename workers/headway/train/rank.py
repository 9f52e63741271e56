"""What one rank of a gang does, wherever its process runs."""

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import gethostname
from typing import Any

import torch
import torch.distributed as dist

from headway.core.codec import to_document
from headway.core.errors import FailedPreconditionError, HeadwayError, InternalError
from headway.core.fault import Fault
from headway.train.device import rank_device
from headway.train.setup import Setup
from headway.train.trainer import Trainer


def rank_news(
    setup: Setup, rank: int, *, meet: Callable[[], dist.Store], should_stop: Callable[[], bool], num_threads: int,
    place: int = 0,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Trains, and yields what the gang's owner hears: rank 0's steps, and of any rank the error with which it ends.

    Args:
        meet: waits for the other ranks.
        should_stop: asked in each step.
        num_threads: to compute with.
        place: among the ranks of this machine that see the same GPUs.
    """
    torch.set_num_threads(num_threads)
    torch.use_deterministic_algorithms(setup.job.deterministic)
    try:
        _check_directory(setup.directory, rank)
        device = rank_device(setup.job.device, place)
        for report in Trainer(setup, rank, store=meet(), should_stop=should_stop, device=device).run():
            if rank == 0:
                yield to_document(report)
    except HeadwayError as error:
        yield {"error": to_document(Fault.of(error))}
    except Exception as error:  # noqa: BLE001 - root of the process
        traceback.print_exc()
        yield {"error": to_document(Fault.of(unexpected(rank, error)))}


def _check_directory(directory: Path, rank: int) -> None:
    if not directory.is_dir():
        raise FailedPreconditionError(
            f"Rank {rank} does not find the run's directory {directory} on {gethostname()}.",
            hint="Give --state-dir on storage that all machines have at the same path.",
            field="state_dir",
        )


def unexpected(rank: int, error: Exception) -> HeadwayError:
    """What an error means that no part of a rank has foreseen."""
    if isinstance(error, RuntimeError) and "use_deterministic_algorithms" in str(error):
        return FailedPreconditionError(
            f"Rank {rank}: the model has an operator that may give other bits each time: {str(error).split(',')[0]}.",
            hint="Leave deterministic out, or write the model without it.",
            field="deterministic",
        )
    return InternalError(f"Rank {rank} failed: {type(error).__name__}: {error}", hint="This is a fault of Headway.")
