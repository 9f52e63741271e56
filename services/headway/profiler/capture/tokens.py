"""Inputs with fewer tokens."""

from typing import TypeVar

import torch
from torch.utils import _pytree as pytree

T = TypeVar("T")


def first_tokens(inputs: T, count: int) -> T:
    """The same tree, of whose tensors (examples, tokens, ...) the first tokens are left; others are as they were."""
    return pytree.tree_map_only(torch.Tensor, lambda tensor: _cut(tensor, count), inputs)  # type: ignore[no-any-return]


def _cut(tensor: torch.Tensor, count: int) -> torch.Tensor:
    has_tokens = tensor.ndim > 1 and tensor.shape[1] > 1
    return tensor[:, :count].contiguous() if has_tokens else tensor
