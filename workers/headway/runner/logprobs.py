"""Log probabilities of tokens, from raw logits."""

from torch import Tensor

from headway.core.request import TokenLogprobs


def token_logprobs(logits: Tensor, token_ids: Tensor, *, num_top: list[int]) -> list[TokenLogprobs]:
    """What `TokenLogprobs` tells about one token per row.

    Args:
        logits: float32 [R, V], before temperature and penalties.
        token_ids: int64 [R].
        num_top: how many of the best tokens to report, per row.
    """
    chosen = logits.gather(1, token_ids[:, None])
    log_mass = logits.logsumexp(1, keepdim=True)
    ranks = (logits > chosen).sum(1) + 1
    best = logits.topk(min(max(num_top), logits.shape[1]), dim=1)
    rows = zip(
        token_ids.tolist(),
        (chosen - log_mass)[:, 0].tolist(),
        ranks.tolist(),
        best.indices.tolist(),
        (best.values - log_mass).tolist(),
        num_top,
        strict=True,
    )
    return [
        TokenLogprobs(token, logprob, rank, tuple(zip(ids[:count], values[:count], strict=True)))
        for token, logprob, rank, ids, values, count in rows
    ]
