"""Reads job files as torchtitan does, and cuts a decoder of its own into the jobs' parts: for tests, with its packages.

Arguments: the sizes of the decoder, and then job files, each with its number of devices.
"""

import json
import sys
import types
from typing import Any


class Unused(types.ModuleType):
    """A package that torchtitan imports for its training loop, of which nothing is used here."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


for _name in ("torch.utils.tensorboard", "datasets", "datasets.distributed"):
    sys.modules[_name] = Unused(_name)

import torch  # noqa: E402
from torch import distributed  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from torchtitan.config.manager import ConfigManager  # noqa: E402
from torchtitan.distributed import ParallelDims  # noqa: E402
from torchtitan.distributed.pipeline_parallel import build_pipeline_schedule, pipeline_module_split  # noqa: E402
from torchtitan.models.llama3.model.args import TransformerModelArgs  # noqa: E402
from torchtitan.models.llama3.model.model import Transformer  # noqa: E402


def parts(job: Any, model: Transformer) -> list[dict[str, list[str]]]:
    """The parameters of each pipeline rank's part."""
    degree = job.parallelism.pipeline_parallel_degree
    found = []
    for rank in range(degree):
        distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=degree)
        mesh = init_device_mesh("cpu", (degree,), mesh_dim_names=("pp",))
        stages, (part,) = pipeline_module_split(
            model,
            mesh,
            job.parallelism.pipeline_parallel_schedule,
            torch.device("meta"),
            job.parallelism.module_fqns_per_model_part,
        )
        schedule = build_pipeline_schedule(job, stages, lambda *_: None)
        found.append(
            {
                "parameters": [name for name, _ in part.named_parameters()],
                "schedule": type(schedule).__name__,
                "num_micro_batches": schedule._n_microbatches,
            }
        )
        distributed.destroy_process_group()
    return found


def read(path: str, num_devices: int, sizes: TransformerModelArgs) -> dict[str, Any]:
    job = ConfigManager().parse_args([f"--job.config-file={path}"])
    each = job.parallelism
    ParallelDims(
        dp_replicate=each.data_parallel_replicate_degree,
        dp_shard=each.data_parallel_shard_degree,
        cp=each.context_parallel_degree,
        tp=each.tensor_parallel_degree,
        pp=each.pipeline_parallel_degree,
        ep=1,
        etp=1,
        world_size=num_devices,
    )
    with torch.device("meta"):
        model = Transformer(sizes)
    return {
        "parallelism": vars(each),
        "training": {key: value for key, value in vars(job.training).items() if key != "dataloader"},
        "activation_checkpoint": job.activation_checkpoint.mode,
        "flavor": job.model.flavor,
        "parameters": [name for name, _ in model.named_parameters()],
        "parts": parts(job, model) if each.pipeline_parallel_degree > 1 else [],
    }


def main() -> None:
    num_layers, hidden, heads, kv_heads, vocabulary = map(int, sys.argv[1:6])
    sizes = TransformerModelArgs(
        dim=hidden, n_layers=num_layers, n_heads=heads, n_kv_heads=kv_heads, vocab_size=vocabulary
    )
    print(json.dumps([read(path, int(num), sizes) for path, num in zip(sys.argv[6::2], sys.argv[7::2], strict=True)]))


main()
