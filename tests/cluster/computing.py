"""What a worker that computes is to answer: transformers' tokens."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from headway.client import Client

_PROMPT = [5, 17, 99, 3, 250, 41, 8]
_NUM_TOKENS = 32


def expected_tokens(model: Path) -> list[int]:
    """Greedy, by transformers."""
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    answer = loaded.generate(
        torch.tensor([_PROMPT]),
        do_sample=False,
        max_new_tokens=_NUM_TOKENS,
        min_new_tokens=_NUM_TOKENS,
        eos_token_id=None,
        pad_token_id=0,
    )
    tokens: list[int] = answer[0, len(_PROMPT) :].tolist()
    return tokens


def tokens_of(client: Client, model: str) -> list[int]:
    """Greedy, by the release."""
    chunks = client.generate(
        _PROMPT, model=model, max_tokens=_NUM_TOKENS, temperature=0, ignore_eos=True, timeout_s=120
    )
    return [token for chunk in chunks for token in chunk.token_ids]
