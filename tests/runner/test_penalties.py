import torch

from headway.core.request import SamplingParams
from headway.engine.sequence import Sequence
from headway.runner.penalties import apply_bias, apply_penalties
from headway.runner.row import Row


def make_row(prompt: list[int], output: list[int], *, drafts: tuple[int, ...] = (), **sampling) -> Row:
    sequence = Sequence("request", prompt + output, len(prompt), SamplingParams(**sampling), arrival_s=0.0)
    return Row(sequence, drafts)


def penalised_by_definition(logits, row):
    params, out = row.sampling, logits.clone()
    output = [*row.sequence.output_token_ids, *row.draft_token_ids]
    for token in {*row.sequence.token_ids, *output}:
        out[token] = (
            out[token] / params.repetition_penalty if out[token] > 0 else out[token] * params.repetition_penalty
        )
    for token in output:
        out[token] -= params.frequency_penalty
    for token in set(output):
        out[token] -= params.presence_penalty
    return out


def test_rows_are_penalised_by_their_own_tokens():
    rows = [
        make_row([1, 2, 2], [3, 3, 3, 4], frequency_penalty=0.5),
        make_row([1, 2], [3, 3, 4], presence_penalty=-1.5),
        make_row([1, 2, 9, 9], [3, 3, 1], repetition_penalty=1.7),
        make_row([5], [6, 6], repetition_penalty=0.6, presence_penalty=0.2, frequency_penalty=0.1),
        make_row([5], [], presence_penalty=2.0, frequency_penalty=2.0),
        make_row([5, 6], [7, 7]),
        make_row([5], [6, 7], drafts=(7, 8), repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.1),
        make_row([5], [], drafts=(7,), frequency_penalty=1.5),
    ]
    logits = torch.randn(len(rows), 12, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([penalised_by_definition(*pair) for pair in zip(logits, rows, strict=True)])
    apply_penalties(logits, rows)
    torch.testing.assert_close(logits, expected)


def test_bias_is_added_to_the_tokens_it_names_only():
    logits = torch.zeros(2, 10)
    apply_bias(logits, [make_row([1], [], logit_bias=((3, 2.5), (7, -100.0), (4000, 1.0))), make_row([1], [])])
    expected = torch.zeros(2, 10)
    expected[0, 3], expected[0, 7] = 2.5, -100.0
    assert logits.equal(expected)
