"""How the tokens of a flat batch attend, each to the whole of its own sequence."""

from torch import Tensor
from torch.nn import functional

from headway.models.encoder import SequenceRun


class RunAttention:
    """One call for all sequences of a length: a batch without padding."""

    def __init__(self, runs: tuple[SequenceRun, ...]) -> None:
        self._runs = runs

    def __call__(self, qkv: Tensor, heads: tuple[int, int]) -> Tensor:
        num_heads, head_dim = heads
        attended = qkv.new_empty(len(qkv), num_heads * head_dim)
        for run in self._runs:
            part = slice(run.first_token, run.end_token)
            q, k, v = qkv[part].view(run.num_sequences, run.length, 3, *heads).permute(2, 0, 3, 1, 4)
            out = functional.scaled_dot_product_attention(q, k, v)
            attended[part].view(run.num_sequences, run.length, *heads).copy_(out.transpose(1, 2))
        return attended


class PaddedAttention:
    """One call for all B sequences, each filled up to the longest, L: a program that does so takes any lengths. Nothing
    but attention is computed for what fills them up.

    Args:
        rows: [B, L] int64, the row of each token; any row where there is none.
        mask: [B, 1, 1, L], 0 for a token and a very small number where there is none.
        places: [T] int64, where each token is among the B * L.
    """

    def __init__(self, rows: Tensor, mask: Tensor, places: Tensor) -> None:
        self._rows = rows
        self._mask = mask
        self._places = places

    def __call__(self, qkv: Tensor, heads: tuple[int, int]) -> Tensor:
        num_heads, head_dim = heads
        padded = qkv[self._rows]
        q, k, v = padded.view(padded.shape[0], padded.shape[1], 3, num_heads, head_dim).permute(2, 0, 3, 1, 4)
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=self._mask)
        return out.transpose(1, 2).reshape(-1, num_heads * head_dim)[self._places]
