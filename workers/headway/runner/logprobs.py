"""Log probabilities of tokens, from raw logits."""

from torch import Tensor

from headway.core.request import TokenLogprobs
from headway.runner.host_copy import HostCopy


class LogprobEntries:
    """The log probabilities of one token per row, as `TokenLogprobs` reports them, computed on the logits' device.

    Args:
        logits: float32 [R, V], before temperature and penalties.
        token_ids: the tokens, int64 [R].
        num_top: how many of the best tokens to report, per row.
    """

    def __init__(self, logits: Tensor, token_ids: Tensor, *, num_top: list[int]) -> None:
        chosen = logits.gather(1, token_ids[:, None])
        log_mass = logits.logsumexp(1, keepdim=True)
        ranks = (logits > chosen).sum(1) + 1
        best = logits.topk(min(max(num_top), logits.shape[1]), dim=1)
        self._num_top = num_top
        self._copy = HostCopy(token_ids, (chosen - log_mass)[:, 0], ranks, best.indices, best.values - log_mass)

    def read(self) -> list[TokenLogprobs]:
        """Waits for the values and returns an entry for each row."""
        rows = zip(*(column.tolist() for column in self._copy.wait()), self._num_top, strict=True)
        return [
            TokenLogprobs(token, logprob, rank, tuple(zip(ids[:count], values[:count], strict=True)))
            for token, logprob, rank, ids, values, count in rows
        ]
