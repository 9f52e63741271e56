"""Copies of blocks between tiers, and between the ranks that share the cache."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from headway.models.layout import CacheAxis
from headway.runner.step_message import Words

LocalCopy: TypeAlias = Callable[[Words], None]
"""Carries out the copies between blocks of one rank, [n, 2], as its pool numbers them."""


def copy_between(pairs: Words, source: Tensor, destination: Tensor, *, copy: LocalCopy, axis: CacheAxis) -> None:
    """Carries out the copies that concern this rank, together with the others.

    Args:
        pairs: [n, 2], blocks of `source` and of `destination`, counted over the ranks one after the other. No block
            is both, and none is written twice.
        source, destination: [blocks, ...], this rank's; all ranks have as many.
        copy: from the one to the other.
    """
    senders, sources = np.divmod(pairs[:, 0], len(source))
    receivers, destinations = np.divmod(pairs[:, 1], len(destination))
    is_local = (senders == receivers) & (senders == axis.rank)
    if is_local.any():
        copy(np.stack((sources[is_local], destinations[is_local]), axis=1))
    if (senders == receivers).all():
        return
    parts, arrivals = [], []
    for rank in range(axis.size):
        is_other = rank != axis.rank
        leaving = sources[(senders == axis.rank) & (receivers == rank) & is_other]
        parts.append(source[torch.from_numpy(leaving)].contiguous())
        arrivals.append(torch.from_numpy(destinations[(receivers == axis.rank) & (senders == rank) & is_other]))
    shapes = [(len(blocks), *source.shape[1:]) for blocks in arrivals]
    for blocks, received in zip(arrivals, axis.all_to_all(parts, shapes=shapes, site="blocks"), strict=True):
        destination[blocks] = received
