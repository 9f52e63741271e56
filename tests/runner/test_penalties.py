import pytest
import torch

from headway.core.request import SamplingParams
from headway.engine.sequence import Sequence
from headway.runner.penalties import apply_penalties, forbid_early_stops


def make_sequence(prompt: list[int], output: list[int], **sampling) -> Sequence:
    return Sequence("request", prompt + output, len(prompt), SamplingParams(**sampling), arrival_s=0.0)


def penalised_by_definition(row, sequence):
    params, out = sequence.sampling, row.clone()
    for token in set(sequence.token_ids):
        out[token] = (
            out[token] / params.repetition_penalty if out[token] > 0 else out[token] * params.repetition_penalty
        )
    for token in sequence.output_token_ids:
        out[token] -= params.frequency_penalty
    for token in set(sequence.output_token_ids):
        out[token] -= params.presence_penalty
    return out


def test_rows_are_penalised_by_their_own_tokens():
    sequences = [
        make_sequence([1, 2, 2], [3, 3, 3, 4], frequency_penalty=0.5),
        make_sequence([1, 2], [3, 3, 4], presence_penalty=-1.5),
        make_sequence([1, 2, 9, 9], [3, 3, 1], repetition_penalty=1.7),
        make_sequence([5], [6, 6], repetition_penalty=0.6, presence_penalty=0.2, frequency_penalty=0.1),
        make_sequence([5], [], presence_penalty=2.0, frequency_penalty=2.0),
        make_sequence([5, 6], [7, 7]),
    ]
    logits = torch.randn(len(sequences), 12, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([penalised_by_definition(*pair) for pair in zip(logits, sequences, strict=True)])
    apply_penalties(logits, sequences)
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize(
    ("sampling", "forbidden"),
    [
        ({"min_tokens": 3}, {0, 1}),
        ({"min_tokens": 3, "stop_token_ids": (5,)}, {0, 1, 5}),
        ({"min_tokens": 3, "stop_token_ids": (5,), "ignore_eos": True}, {5}),
        ({"min_tokens": 2, "stop_token_ids": (5,)}, set()),
        ({"min_tokens": 3, "stop_token_ids": (4000,)}, {0, 1}),
        ({"min_tokens": 3, "ignore_eos": True}, set()),
    ],
)
def test_stops_are_forbidden_until_min_tokens(sampling, forbidden):
    logits = torch.zeros(1, 10)
    forbid_early_stops(logits, [make_sequence([3], [4, 4], **sampling)], eos_token_ids=(0, 1))
    assert set((logits[0] == -torch.inf).nonzero()[:, 0].tolist()) == forbidden
