"""How much memory a request is given, and when."""

from enum import StrEnum

from headway.engine.sequence import Sequence


class Policy(StrEnum):
    """Paging, or one of the dissertation's three Orca baselines (5.6.1)."""

    PAGED = "paged"
    ORACLE = "oracle"
    POWER_OF_TWO = "power of two"
    MAX = "max"


def final_tokens(sequence: Sequence) -> int:
    """Slots that a sequence of exact length fills in the end: its last token needs none."""
    return sequence.num_prompt_tokens + sequence.sampling.max_tokens - 1


def reserved_tokens(sequence: Sequence, policy: Policy, *, max_model_len: int) -> int:
    """Slots that a baseline reserves when the sequence is admitted."""
    match policy:
        case Policy.ORACLE:
            return final_tokens(sequence)
        case Policy.POWER_OF_TWO:
            rounded = 1 << (sequence.sampling.max_tokens - 1).bit_length()
            return min(sequence.num_prompt_tokens + rounded, max_model_len)
        case _:
            return max_model_len
