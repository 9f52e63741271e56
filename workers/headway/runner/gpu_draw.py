"""The choice of tokens on a GPU, in one launch that nobody waits for: the same draws as `draw` and `truncation`."""

import numpy as np
import torch
from torch import Tensor

from headway.kernels import to_device
from headway.kernels.cuda import sample_tokens
from headway.runner.row import Row

_MASK_64 = (1 << 64) - 1


def choose_tokens(logits: Tensor, rows: list[Row]) -> Tensor:
    """The best token of greedy rows and of beams, a drawn one of the others, int64 [R].

    Args:
        logits: float32 [R, V], on the device where the kernels are to run.
    """
    params = [row.sampling for row in rows]
    seeds = np.array([p.seed & _MASK_64 for p in params], np.uint64).view(np.int64)
    columns = {
        "seeds": torch.from_numpy(seeds),
        "positions": torch.tensor([row.num_output_tokens for row in rows]),
        "temperatures": torch.tensor([0.0 if p.is_greedy or p.beam is not None else p.temperature for p in params]),
        "top_k": torch.tensor([p.top_k for p in params]),
        "top_p": torch.tensor([p.top_p for p in params], dtype=torch.float64),
        "min_p": torch.tensor([p.min_p for p in params]),
    }
    return sample_tokens(logits, **{name: to_device(column, logits.device) for name, column in columns.items()})
