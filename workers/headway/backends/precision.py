"""What torch computes the products of float32 tensors in."""

from collections.abc import Callable

import torch

from headway.backends.library import CompileOptions, Run

_ROUNDED = ("matmul", "conv")
_ONE_DNN = {"float32": "ieee", "bfloat16": "bf16"}


def with_precision(run: Run, options: CompileOptions) -> Run:
    """A run whose matrix products and convolutions round what they multiply, and sum in float32. What else the process
    computes is as before: the setting is torch's own and holds for all threads, so that it is put back after each run.
    """
    if options.precision == "float32":
        return run

    def rounded(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return rounding(options.precision, lambda: run(*tensors))

    return rounded


def rounding(precision: str, run: Callable[[], tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
    """Runs something with products in a precision."""
    settings = [getattr(torch.backends.mkldnn, name) for name in _ROUNDED]
    before = [setting.fp32_precision for setting in settings]
    for setting in settings:
        setting.fp32_precision = _ONE_DNN[precision]
    try:
        return run()
    finally:
        for setting, precision_before in zip(settings, before, strict=True):
            setting.fp32_precision = precision_before
