import random

import pytest
import torch
from transformers import NoBadWordsLogitsProcessor

from headway.core.request import Guide, GuideKind, SamplingParams
from headway.engine.sequence import Sequence
from headway.runner.constraints import forbid_bad_words, forbid_early_stops, forbid_unguided
from headway.runner.row import Row

VOCAB_SIZE = 10


def make_row(tokens: list[int], *, num_prompt: int = 1, drafts: tuple[int, ...] = (), **sampling) -> Row:
    return Row(Sequence("request", tokens, num_prompt, SamplingParams(**sampling), arrival_s=0.0), drafts)


def forbidden(logits: torch.Tensor, row: int = 0) -> set[int]:
    return set((logits[row] == -torch.inf).nonzero()[:, 0].tolist())


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({"min_tokens": 3}, {0, 1}),
        ({"min_tokens": 3, "stop_token_ids": (5,)}, {0, 1, 5}),
        ({"min_tokens": 3, "stop_token_ids": (5,), "ignore_eos": True}, {5}),
        ({"min_tokens": 2, "stop_token_ids": (5,)}, set()),
        ({"min_tokens": 3, "stop_token_ids": (4000,)}, {0, 1}),
        ({"min_tokens": 3, "ignore_eos": True}, set()),
        ({"min_tokens": 3, "drafts": (4,)}, set()),
    ],
)
def test_stops_are_forbidden_until_min_tokens(sampling, expected):
    logits = torch.zeros(1, VOCAB_SIZE)
    forbid_early_stops(logits, [make_row([3, 4, 4], **sampling)], eos_token_ids=(0, 1))
    assert forbidden(logits) == expected


@pytest.mark.parametrize("seed", range(20))
def test_bad_words_are_those_of_transformers(seed):
    draw = random.Random(seed)
    tokens = [draw.randrange(3) for _ in range(draw.choice((1, 2, 12)))]
    words = {tuple(draw.randrange(3) for _ in range(draw.choice((1, 2, 3, 4)))) for _ in range(5)} | {(2,)}
    logits = torch.zeros(1, VOCAB_SIZE)
    forbid_bad_words(logits, [make_row(tokens, bad_token_ids=tuple(words))], eos_token_ids=(2,))
    reference = NoBadWordsLogitsProcessor([list(word) for word in words], eos_token_id=2)
    assert logits.equal(reference(torch.tensor([tokens]), torch.zeros(1, VOCAB_SIZE)))


def test_bad_words_begin_in_prompt_output_and_drafts_alike():
    words = ((1, 2, 3, 4), (6,), (4000,))
    rows = [
        make_row([0, 1, 2, 3], num_prompt=2, bad_token_ids=words),
        make_row([0, 1], bad_token_ids=words, drafts=(2, 3)),
        make_row([0, 1], bad_token_ids=words, drafts=(2,)),
        make_row([2, 3], bad_token_ids=words),
        make_row([1, 2, 3]),
    ]
    logits = torch.zeros(len(rows), VOCAB_SIZE)
    forbid_bad_words(logits, rows, eos_token_ids=())
    assert [forbidden(logits, row) for row in range(len(rows))] == [{4, 6}, {4, 6}, {6}, {6}, set()]


class Parity:
    """A language: after an even token comes an odd one, and the other way round."""

    def mask(self, rows: list[tuple[Sequence, tuple[int, ...]]]) -> torch.Tensor:
        last = torch.tensor([(*sequence.token_ids, *drafts)[-1] for sequence, drafts in rows])
        return (torch.arange(VOCAB_SIZE) + last[:, None]) % 2 == 1


def test_only_guided_rows_are_masked_each_behind_its_own_drafts():
    guide = Guide(GuideKind.REGEX, "x")
    rows = [make_row([2]), make_row([2], guide=guide), make_row([2], guide=guide, drafts=(3,))]
    logits = torch.zeros(len(rows), VOCAB_SIZE)
    forbid_unguided(logits, rows, guides=Parity())
    assert [forbidden(logits, row) for row in range(3)] == [set(), {0, 2, 4, 6, 8}, {1, 3, 5, 7, 9}]
