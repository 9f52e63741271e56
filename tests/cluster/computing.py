"""What a worker that computes is to answer, and what a release answers."""

from pathlib import Path

from headway.client import Client
from tests.greedy import greedy

_PROMPT = [5, 17, 99, 3, 250, 41, 8]
_NUM_TOKENS = 32


def expected_tokens(model: Path) -> list[int]:
    """Greedy, by transformers."""
    return greedy(model, _PROMPT, _NUM_TOKENS)


def tokens_of(client: Client, model: str) -> list[int]:
    """Greedy, by the release."""
    chunks = client.generate(
        _PROMPT, model=model, max_tokens=_NUM_TOKENS, temperature=0, ignore_eos=True, timeout_s=120
    )
    return [token for chunk in chunks for token in chunk.token_ids]
