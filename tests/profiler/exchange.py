"""Small files in the forms of AlpaServe and TeraPipe."""

from typing import Any

STAGES: dict[str, Any] = {
    "meta": {"source": "made up", "units": "s, bytes"},
    "models": {
        "toy": {
            "configs": {
                "pp1_op1": {
                    "pp": 1,
                    "op": 1,
                    "dp": 1,
                    "num_gpus": 1,
                    "weight_mem_bytes": [300.0],
                    "batch": {"1": {"stage_latency_s": [1.0], "act_mem_bytes": [40.0]}},
                    "layers_per_stage": None,
                },
                "pp2_op4": {
                    "pp": 2,
                    "op": 4,
                    "dp": 1,
                    "num_gpus": 8,
                    "weight_mem_bytes": [100.0, 200.0],
                    "batch": {
                        "1": {"stage_latency_s": [0.25, 0.5], "act_mem_bytes": [10.0, 0.0]},
                        "2": {"stage_latency_s": [0.5, 0.75], "act_mem_bytes": [20.0, 0.0]},
                    },
                    "layers_per_stage": [3, 4],
                },
            }
        }
    },
}


def slices() -> dict[str, Any]:
    """One setting whose context term is 1e-5 + 1e-8 i + 2e-8 j + 1e-9 i j."""
    latency = {}
    for batch in (1, 2):
        for tokens in range(64, 513, 64):
            for context in (0, *range(64, 513, 64)):
                added_s = 1e-5 + batch * (1e-8 * tokens + 2e-8 * context + 1e-9 * tokens * context)
                forward_s = 1e-3 + 1e-6 * batch * tokens + (added_s if context else 0.0)
                latency[f"{batch}_{tokens}_{context}"] = [forward_s, 2 * forward_s, 1e-3]
    return {
        "provenance": "made up",
        "schema": {},
        "settings": {
            "1": {
                "model": "toy",
                "batch": 2,
                "mp": 8,
                "pipeline": 4,
                "layers_per_stage": 2,
                "seqlen": 512,
                "latency": latency,
                "comm": {"tensor_sizes": [1, 64, 128], "mean": [1e-5, 1e-4, 2e-4]},
            }
        },
    }
