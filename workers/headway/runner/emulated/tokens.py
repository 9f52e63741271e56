"""Tokens and vectors that nobody computed: made up, and always the same for the same question. Pure.

A token is one of the prompt's own, so that it is text wherever the prompt is. Which one depends on the prompt, on how
many tokens came before it, and where the request samples on its seed; so an answer is the same in any batch, after any
preemption, and when it goes on at another worker.
"""

import hashlib
import math
import random
import struct

from headway.core.encoder import EncoderSpec, ScoreFunction
from headway.core.infer import InferSequence
from headway.runner.row import Row

_MASK_64 = (1 << 64) - 1


def next_token(row: Row, *, eos_token_ids: tuple[int, ...]) -> int:
    """The token behind a row; never one that ends the sequence, so that answers are as long as they may be."""
    prompt = row.sequence.token_ids[: row.sequence.num_prompt_tokens]
    seed = 0 if row.sampling.is_greedy else row.sampling.seed
    first = _mix(seed * 0x9E3779B97F4A7C15 + row.num_output_tokens + 1) % len(prompt)
    tokens = (prompt[(first + step) % len(prompt)] for step in range(len(prompt)))
    plain = (token for token in tokens if token not in eos_token_ids)
    return next(plain, 0 if 0 not in eos_token_ids else max(eos_token_ids) - 1)


def vector(sequence: InferSequence, *, hidden_size: int, encoder: EncoderSpec) -> bytes:
    """An embedding of length 1, or what a classifier gives for each label; float32, little-endian."""
    tokens = struct.pack(f"<{len(sequence.token_ids)}q", *sequence.token_ids)
    types = struct.pack(f"<{len(sequence.token_type_ids)}q", *sequence.token_type_ids)
    generator = random.Random(hashlib.sha256(tokens + b"types" + types).digest())
    if encoder.labels:
        values = _scores([generator.gauss(0, 1) for _ in encoder.labels], encoder.score_function)
    else:
        values = [generator.gauss(0, 1) for _ in range(hidden_size)]
        length = math.sqrt(sum(value * value for value in values))
        values = [value / length for value in values]
    return struct.pack(f"<{len(values)}f", *values)


def _scores(logits: list[float], function: ScoreFunction) -> list[float]:
    match function:
        case ScoreFunction.SIGMOID:
            return [1 / (1 + math.exp(-logit)) for logit in logits]
        case ScoreFunction.SOFTMAX:
            weights = [math.exp(logit) for logit in logits]
            return [weight / sum(weights) for weight in weights]
    return logits


def _mix(state: int) -> int:
    """splitmix64's output function, as in `headway.runner.draw`."""
    state &= _MASK_64
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK_64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK_64
    return state ^ (state >> 31)
