"""Greedy tokens by transformers, which are what a worker that computes is to answer."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


def greedy(checkpoint: Path, prompt: list[int], num_tokens: int, *, penalty: float = 1.0) -> list[int]:
    """What comes behind the prompt; it never stops.

    Args:
        penalty: of repetition.
    """
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    answer = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        repetition_penalty=penalty,
        max_new_tokens=num_tokens,
        min_new_tokens=num_tokens,
        eos_token_id=None,
        pad_token_id=0,
    )
    tokens: list[int] = answer[0, len(prompt) :].tolist()
    return tokens
