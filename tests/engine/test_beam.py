"""Beam search against transformers', on a model whose logits are random numbers looked up by the whole prefix."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from headway.core.request import BeamSearch, EarlyStopping, FinishReason, Hypothesis
from headway.engine.beam import BeamState

VOCAB_SIZE = 23
NUM_ROWS = 509
PROMPT = [3, 1, 4]
MAX_TOKENS = 12
TRANSFORMERS_NAMES: dict[EarlyStopping, bool | str] = {
    EarlyStopping.FIRST: True,
    EarlyStopping.HEURISTIC: False,
    EarlyStopping.NEVER: "never",
}


class TableModel(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """Logits of a prefix: the row of a seeded table that the prefix's hash names."""

    config_class = PretrainedConfig
    main_input_name = "input_ids"

    def __init__(self, *, seed: int) -> None:
        super().__init__(PretrainedConfig(vocab_size=VOCAB_SIZE, num_hidden_layers=1, hidden_size=1))
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.nn.Parameter(2 * torch.randn((NUM_ROWS, VOCAB_SIZE), generator=generator))

    def forward(self, input_ids: torch.Tensor, **_: Any) -> CausalLMOutput:
        rows = torch.zeros(len(input_ids), dtype=torch.long)
        for column in input_ids.T:
            rows = (rows * 31 + column + 7) % NUM_ROWS
        return CausalLMOutput(logits=self.table[rows][:, None])

    def log_probs(self, token_ids: list[int]) -> torch.Tensor:
        return self.forward(torch.tensor([token_ids])).logits[0, -1].log_softmax(-1)


def search(model: TableModel, params: BeamSearch, *, stops: frozenset[int], max_tokens: int) -> tuple[Hypothesis, ...]:
    state = BeamState(params, stop_token_ids=stops, min_tokens=0, max_tokens=max_tokens)
    beams: list[list[int]] = [[]]
    while not state.is_done:
        for index, output in enumerate(beams):
            best = model.log_probs([*PROMPT, *output]).topk(min(VOCAB_SIZE, max(2, 1 + len(stops)) * params.width))
            state.offer(index, list(zip(best.indices.tolist(), best.values.tolist(), strict=True)))
        beams = [[*beams[parent], token] for parent, token in state.advance(beams)]
    return state.hypotheses


@torch.inference_mode()
def search_by_transformers(
    model: TableModel, params: BeamSearch, *, stops: frozenset[int], max_tokens: int
) -> SimpleNamespace:
    config = GenerationConfig(
        num_beams=params.width,
        num_return_sequences=params.num_hypotheses,
        length_penalty=params.length_penalty,
        early_stopping=TRANSFORMERS_NAMES[params.early_stopping],
        max_new_tokens=max_tokens,
        eos_token_id=sorted(stops) or None,
        pad_token_id=VOCAB_SIZE - 1,
        use_cache=False,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    prompt = torch.tensor([PROMPT])
    found = model.generate(prompt, generation_config=config, attention_mask=torch.ones_like(prompt))
    outputs = found.sequences[:, len(PROMPT) :].tolist()
    return SimpleNamespace(outputs=outputs, scores=found.sequences_scores.tolist())


@torch.inference_mode()
@pytest.mark.parametrize("early_stopping", list(EarlyStopping))
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0, -1.0])
@pytest.mark.parametrize("width", [2, 4, 6])
@pytest.mark.parametrize("stops", [frozenset({5}), frozenset({5, 9, 11}), frozenset()])
def test_hypotheses_equal_those_of_transformers(
    width: int, length_penalty: float, early_stopping: EarlyStopping, stops: frozenset[int]
) -> None:
    params = BeamSearch(width=width, num_hypotheses=width, length_penalty=length_penalty, early_stopping=early_stopping)
    for seed in range(2):
        model = TableModel(seed=seed)
        found = search(model, params, stops=stops, max_tokens=MAX_TOKENS)
        expected = search_by_transformers(model, params, stops=stops, max_tokens=MAX_TOKENS)
        for hypothesis, output, score in zip(found, expected.outputs, expected.scores, strict=True):
            padding = output[len(hypothesis.token_ids) :]
            assert [*hypothesis.token_ids, *padding] == output, f"seed {seed}"
            assert set(padding) <= {VOCAB_SIZE - 1}
            assert hypothesis.score == pytest.approx(score, rel=1e-4)
            is_stop = hypothesis.token_ids[-1] in stops
            assert hypothesis.finish_reason is (FinishReason.STOP if is_stop else FinishReason.LENGTH)


def state(*, width: int = 2, stops: frozenset[int] = frozenset({9}), min_tokens: int = 0, **search: Any) -> BeamState:
    params = BeamSearch(width=width, num_hypotheses=width, **search)
    return BeamState(params, stop_token_ids=stops, min_tokens=min_tokens, max_tokens=5)


def test_a_step_waits_for_the_candidates_of_every_live_beam() -> None:
    beams = state()
    assert beams.offer(0, [(1, -0.1), (2, -0.2), (3, -0.3)])
    assert beams.advance([[]]) == [(0, 1), (0, 2)]
    assert not beams.offer(1, [(4, -0.5)])
    assert beams.offer(0, [(5, -0.1)])
    assert beams.advance([[1], [2]]) == [(0, 5), (1, 4)]


def test_beams_that_are_computed_anew_offer_their_candidates_again() -> None:
    beams = state()
    beams.offer(0, [(1, -0.1), (2, -0.2)])
    beams.advance([[]])
    beams.offer(1, [(4, -0.5)])
    beams.forget_candidates()
    assert not beams.offer(0, [(5, -0.1)])
    assert beams.offer(1, [(4, -0.5)])


def test_an_end_behind_the_first_ranks_is_no_hypothesis() -> None:
    beams = state()
    beams.offer(0, [(1, -0.1), (2, -0.2), (9, -0.3)])
    assert beams.advance([[]]) == [(0, 1), (0, 2)]
    assert beams.hypotheses == ()


def test_a_stop_token_within_the_minimum_is_a_token_like_others() -> None:
    beams = state(min_tokens=1)
    beams.offer(0, [(9, -0.1), (2, -0.2)])
    assert beams.advance([[]]) == [(0, 9), (0, 2)]


def test_a_search_without_continuations_is_done() -> None:
    beams = state()
    beams.offer(0, [(9, -0.1), (2, float("-inf"))])
    assert beams.advance([[]]) == []
    assert beams.is_done
    assert beams.hypotheses == (Hypothesis((9,), -0.1, FinishReason.STOP),)
