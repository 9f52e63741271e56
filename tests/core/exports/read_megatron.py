"""Reads flags as Megatron-LM does, with the configurations of megatron-core: for tests, with its packages.

Arguments: files with the array MEGATRON_ARGS, each with its number of devices. pretrain_gpt.py, which is in no package,
hands flags to the fields of these configurations that have their names.
"""

import json
import subprocess
import sys
from dataclasses import fields
from typing import Any

import torch
from megatron.core import num_microbatches_calculator
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
from megatron.core.transformer.transformer_config import TransformerConfig

_RENAMED = {"group_query_attention": None, "swiglu": "gated_linear_unit", "data_parallel_sharding_strategy": None}


def arguments(path: str) -> dict[str, Any]:
    """The flags as a shell hands them on."""
    shell = f'source "{path}"; printf "%s\\n" "${{MEGATRON_ARGS[@]}}"'
    words = subprocess.run(["bash", "-c", shell], check=True, capture_output=True, text=True).stdout.split()
    found: dict[str, Any] = {}
    for word in words:
        if word.startswith("--"):
            name = word.removeprefix("--").replace("-", "_")
            found[name] = True
        else:
            found[name] = int(word) if word.isdigit() else word
    return found


def read(path: str, num_devices: int) -> dict[str, Any]:
    given = arguments(path)
    known = {field.name for field in fields(TransformerConfig)}
    options = {_RENAMED.get(name, name): value for name, value in given.items() if _RENAMED.get(name, name) in known}
    if given.get("bf16"):
        options |= {"params_dtype": torch.bfloat16, "pipeline_dtype": torch.bfloat16}
    options.setdefault("pipeline_dtype", torch.float32)
    config = TransformerConfig(**options)
    parts = []
    if config.pipeline_model_parallel_layout is not None:
        layout = config.pipeline_model_parallel_layout
        assert isinstance(layout, PipelineParallelLayerLayout)
        layout.validate_layer_layout(num_layers=config.num_layers, mtp_num_layers=0)
        parts = [[kind.name for kind in row[0]] for row in layout.layout]
    model_parallel = (
        config.tensor_model_parallel_size * config.pipeline_model_parallel_size * config.context_parallel_size
    )
    data, rest = divmod(num_devices, model_parallel)
    assert not rest
    num_microbatches_calculator.unset_num_microbatches_calculator()
    num_microbatches_calculator.init_num_microbatches_calculator(
        0, None, given["global_batch_size"], given["micro_batch_size"], data
    )
    sharding = DistributedDataParallelConfig(
        use_distributed_optimizer=given.get("use_distributed_optimizer", False),
        use_megatron_fsdp=given.get("use_megatron_fsdp", False),
        data_parallel_sharding_strategy=given.get("data_parallel_sharding_strategy", "no_shard"),
    )
    return {
        "given": given,
        "parts": parts,
        "data_parallel_size": data,
        "num_micro_batches": num_microbatches_calculator.get_num_microbatches(),
        "ffn_hidden_size": config.ffn_hidden_size,
        "num_query_groups": config.num_query_groups,
        "recompute_granularity": config.recompute_granularity,
        "sharding": sharding.data_parallel_sharding_strategy,
    }


def main() -> None:
    print(json.dumps([read(path, int(num)) for path, num in zip(sys.argv[1::2], sys.argv[2::2], strict=True)]))


main()
