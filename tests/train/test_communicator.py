"""What ranks exchange tensors by follows the device."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from headway.core.errors import FailedPreconditionError
from headway.train.communicator import backend, communicator


def test_gpus_exchange_by_nccl_and_cpus_by_gloo() -> None:
    assert (backend(torch.device("cuda", 1)), backend(torch.device("cpu"))) == ("nccl", "gloo")
    made = communicator(dist.HashStore(), 0, 1, device=torch.device("cpu"), timeout=timedelta(seconds=5))
    tensor = torch.ones(2)
    made.allreduce([tensor]).wait()
    assert tensor.tolist() == [1.0, 1.0]
    made.shutdown()


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch has GPUs")
def test_a_machine_without_nccl_is_told() -> None:
    with pytest.raises(FailedPreconditionError, match="Tensors on cuda:0 are exchanged by NCCL, and torch"):
        communicator(dist.HashStore(), 0, 1, device=torch.device("cuda", 0), timeout=timedelta(seconds=5))
