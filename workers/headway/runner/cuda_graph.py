"""CUDA graphs: what a step launches, recorded once and launched as one."""

from collections.abc import Callable

import torch

from headway.core.model import ModelSpec
from headway.models.grouped_experts import groups_experts


def launches_whole_steps(spec: ModelSpec, device: torch.device) -> bool:
    """Whether the host launches a step of a model without waiting for any of it: on a GPU, where it does not have to
    count each expert's rows."""
    return device.type == "cuda" and (spec.experts is None or groups_experts(spec, device))


class TorchCudaGraph:
    """A captured CUDA graph of torch; implements `headway.runner.step_graphs.Capture`.

    All that it captures shares its memory, so one graph must have ended before another begins, as on one stream it has.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @property
    def used_bytes(self) -> int:
        free_bytes, total_bytes = torch.cuda.mem_get_info(self._device)
        return total_bytes - free_bytes

    def __call__(self, compute: Callable[[], None]) -> Callable[[], None]:
        stream = self._stream
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            compute()  # what libraries set up at their first call is not to be recorded
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads may be computing other models meanwhile: their calls are no fault of this capture.
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            compute()
        return graph.replay
