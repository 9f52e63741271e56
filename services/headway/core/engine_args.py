"""Arguments that users hand to an engine as they are, besides what Headway decides. Pure."""

import shlex

from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError

_PLAN = "the plan"
_DECIDED = {
    "model": "--model",
    "served-model-name": "--model NAME=DIR",
    "tokenizer": _PLAN,
    "skip-tokenizer-init": _PLAN,
    "dtype": "--dtype",
    "max-model-len": "--max-model-len",
    "max-num-seqs": "--max-num-seqs",
    "max-num-batched-tokens": "--max-num-batched-tokens",
    "block-size": "--block-size",
    "num-gpu-blocks-override": "--kv-cache-memory",
    "kv-cache-memory-bytes": "--kv-cache-memory",
    "gpu-memory-utilization": "--memory",
    "disable-hybrid-kv-cache-manager": _PLAN,
    "no-disable-hybrid-kv-cache-manager": _PLAN,
    "enable-prefix-caching": "--no-prefix-cache",
    "no-enable-prefix-caching": "--no-prefix-cache",
    "tensor-parallel-size": "--tp",
    "pipeline-parallel-size": _PLAN,
    "data-parallel-size": "--workers",
    "decode-context-parallel-size": _PLAN,
    "prefill-context-parallel-size": _PLAN,
    "distributed-executor-backend": _PLAN,
    "worker-cls": _PLAN,
    "worker-extension-cls": _PLAN,
    "kv-events-config": _PLAN,
    "scheduling-policy": "--queue-policy",
    "generation-config": "--generation-config",
    "seed": "the seed of each request",
    "disable-log-stats": _PLAN,
    "enable-logging-iteration-details": _PLAN,
}
"""vLLM's flags, and who says it instead."""
_SHORT = {"tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "dp": "data-parallel-size"}


def check_engine(kind: EngineKind, args: str) -> None:
    """InvalidArgumentError where the arguments are for none, or contradict what Headway decides."""
    check_engine_args(args)
    if kind is not EngineKind.VLLM and args:
        computes = "Headway's own engine" if kind is EngineKind.HEADWAY else "a server that was started already"
        raise InvalidArgumentError(
            f"--engine-args '{args}' are for --engine vllm, and {computes} computes the model.",
            hint="Say --engine vllm, or leave them out.",
            field="--engine-args",
        )


def check_engine_args(text: str) -> None:
    """Refuses arguments that contradict, or only repeat, what Headway decides; the engine itself checks the others.

    Raises:
        InvalidArgumentError: it names the flag, and what decides instead.
    """
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise InvalidArgumentError(f"--engine-args {text!r} cannot be read: {error}.", field="--engine-args") from None
    if parts and not parts[0].startswith("-"):
        raise InvalidArgumentError(
            f"--engine-args '{parts[0]}' is no flag.",
            hint="Write as in --engine-args '--enforce-eager'.",
            field="--engine-args",
        )
    for part in parts:
        flag = part.partition("=")[0].lstrip("-").replace("_", "-")
        decides = _DECIDED.get(_SHORT.get(flag, flag)) if part.startswith("-") else None
        if decides is not None:
            raise InvalidArgumentError(
                f"--engine-args '{part}': that is decided by {decides}.",
                hint="Leave it out." if decides == _PLAN else f"Leave it out, and give `headway up` {decides}.",
                field="--engine-args",
            )
