"""A rank's experts as two stacked weights, each multiplied with all of a step's rows in one launch.

How many rows each expert has stays on the device: the host launches the step without knowing, ahead of time or as part
of a captured graph.
"""

import torch
from torch import Tensor
from torch.nn import functional

from headway import kernels
from headway.core.model import ExpertsSpec, ModelSpec
from headway.core.parallel_config import Span
from headway.kernels import KernelSet, kernel_set

# Of a row, as the device's products want it: 16 bytes of bfloat16.
_ALIGNMENT = 8

# Hopper and Blackwell. Elsewhere PyTorch has the host look at each expert's rows.
_CAPABILITIES = (9, 10)


def groups_experts(spec: ModelSpec, device: torch.device) -> bool:
    """Whether a model's experts can be multiplied so on a device."""
    experts = spec.experts
    if experts is None or spec.dtype != "bfloat16" or spec.quantization is not None or spec.mlp_bias:
        return False
    is_aligned = spec.hidden_size % _ALIGNMENT == 0 and experts.intermediate_size % _ALIGNMENT == 0
    return is_aligned and kernel_set(device) is KernelSet.CUDA and _has_grouped_products(device)


class GroupedExperts:
    """The experts of one rank, which multiply all their tokens in one launch; see `MixtureOfExperts`.

    Args:
        numbers: the numbers of the model's experts that this rank has.
    """

    def __init__(
        self,
        spec: ModelSpec,
        experts: ExpertsSpec,
        numbers: Span,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        count, width, inner = len(numbers), spec.hidden_size, experts.intermediate_size
        self._first = numbers.start
        self._num_others = experts.num_experts - count
        self._gate_up = torch.empty(count, 2 * inner, width, dtype=dtype, device=device)
        self._down = torch.empty(count, width, inner, dtype=dtype, device=device)

    def weights(self, number: int) -> tuple[Tensor, Tensor]:
        """Returns the weights of one expert, to be loaded: gates and what they gate [2 * inner, width], and the way
        down [width, inner].
        """
        return self._gate_up[number - self._first], self._down[number - self._first]

    def __call__(self, x: Tensor, chosen: Tensor) -> Tensor:
        """x [T, width] and the experts of each row [T, k] -> [T, k, width], zeros for those of other ranks."""
        count, num_chosen = len(self._gate_up), chosen.shape[1]
        own = chosen.flatten() - self._first
        if self._num_others:  # behind all of this rank's
            own = torch.where((own >= 0) & (own < count), own, count)
        order = own.argsort(stable=True)
        numbers = torch.arange(count, device=x.device)
        ends = torch.searchsorted(own[order], numbers, right=True).to(torch.int32)
        rows = x[order // num_chosen]
        inner = kernels.silu_mul(functional.grouped_mm(rows, self._gate_up.transpose(1, 2), offs=ends))
        products = functional.grouped_mm(inner, self._down.transpose(1, 2), offs=ends)
        if self._num_others:  # rows behind the last end hold anything
            products = torch.where((own[order] < count)[:, None], products, 0)
        outputs = torch.empty_like(products).index_copy_(0, order, products)
        return outputs.view(*chosen.shape, x.shape[1])


def _has_grouped_products(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] in _CAPABILITIES
