"""Recipes that start each server: Headway, and the ones that it is compared with."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What a server is asked to serve, and where.

    Attributes:
        python: interpreter of the environment that the server is installed in.
        state_dir: an empty directory that the server may write to.
        dtype: of weights and KV cache, 'float32' or 'bfloat16'.
        extra_args, extra_env: from the command line, last, so that they override the recipe's own.
    """

    model_name: str
    model_dir: Path
    port: int
    state_dir: Path
    python: Path = Path(sys.executable)
    dtype: str = "float32"
    extra_args: tuple[str, ...] = ()
    extra_env: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A server's command line and environment, and the path that answers 200 once it is ready."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    ready_path: str


class Recipe(Protocol):
    """Turns a deployment into the command that starts it."""

    def __call__(self, deployment: Deployment) -> Launch: ...


def launch_headway(deployment: Deployment) -> Launch:
    """`headway up` in the foreground, from the environment that runs this benchmark."""
    command = (
        str(deployment.python.with_name("headway")),
        "up",
        "--model",
        f"{deployment.model_name}={deployment.model_dir}",
        "--port",
        str(deployment.port),
        "--state-dir",
        str(deployment.state_dir),
        "--dtype",
        deployment.dtype,
    )
    return Launch(
        command=command + deployment.extra_args,
        env={**os.environ, **deployment.extra_env},
        ready_path="/ready",
    )


def launch_vllm_cpu(deployment: Deployment) -> Launch:
    """vLLM's CPU build with every core bound to a thread, the fastest of its settings on small machines."""
    command = (
        str(deployment.python),
        *("-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(deployment.model_dir)),
        *("--served-model-name", deployment.model_name),
        *("--host", "127.0.0.1", "--port", str(deployment.port)),
        *("--dtype", deployment.dtype, "--max-model-len", "2048"),
    )
    last_cpu = len(os.sched_getaffinity(0)) - 1
    env = {
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{last_cpu}",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return Launch(
        command=command + deployment.extra_args,
        env={**os.environ, **env, **deployment.extra_env},
        ready_path="/health",
    )


PEERS: dict[str, Recipe] = {"headway": launch_headway, "vllm-cpu": launch_vllm_cpu}
