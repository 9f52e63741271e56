"""Guided decoding through the production engine on a random network: whatever it would rather say, it obeys."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.request import FinishReason, GenerationRequest, Guide, GuideKind, SamplingParams
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.gateway.tools.call import CallDelta
from headway.gateway.tools.syntax import BARE, TAGGED, ToolSyntax
from headway.gateway.tools.tool import Tool, Toolbox
from headway.runner.model_runner import ModelRunner
from tests.checkpoints import make_checkpoint

PROMPT = (9, 8, 7)
MAX_TOKENS = 480


class Model:
    """A tiny Llama with its tokenizer; `stats` of the latest run."""

    def __init__(self, directory: Path) -> None:
        checkpoint = read_checkpoint(directory)
        self._eos_token_ids = checkpoint.eos_token_ids
        self.runner = ModelRunner(checkpoint, num_blocks=256, num_threads=1)
        self._tokenizer = Tokenizer.from_file(str(checkpoint.tokenizer_file))

    def token_id(self, token: str) -> int:
        return self._tokenizer.token_to_id(token)

    def generate(self, *params: SamplingParams, num_given: int = 0, is_group: bool = False, **limits: int) -> list[str]:
        """The texts of sequences side by side, all of which must end by themselves if they are guided.

        Args:
            num_given: the sequences are cut after so many tokens, and go on in another engine.
            is_group: they are samples of one request.
        """
        outputs: list[list[int]] = [[] for _ in params]
        if num_given:
            self._run([replace(param, max_tokens=num_given) for param in params], outputs, is_group=is_group, **limits)
        reasons = self._run(list(params), outputs, is_group=is_group, **limits)
        for param, reason in zip(params, reasons, strict=True):
            assert reason is (FinishReason.STOP if param.guide else FinishReason.LENGTH)
        return [self._tokenizer.decode(tokens) for tokens in outputs]

    def _run(
        self, params: list[SamplingParams], outputs: list[list[int]], *, is_group: bool, **limits: int
    ) -> list[FinishReason | None]:
        sizes = {"num_blocks": 256, "max_num_seqs": 32, "max_model_len": 512, "vocab_size": 512, **limits}
        config = EngineConfig(eos_token_ids=self._eos_token_ids, **sizes)
        engine = Engine(config, runner=self.runner, clock=time.perf_counter)
        requests = [
            GenerationRequest(
                request_id=str(index),
                model="m",
                prompt_token_ids=PROMPT,
                output_token_ids=tuple(outputs[index]),
                sampling=sampling,
            )
            for index, sampling in enumerate(params)
        ]
        for group in [requests] if is_group else [[request] for request in requests]:
            engine.submit_group(group)
        reasons: list[FinishReason | None] = [None] * len(params)
        while engine.has_work:
            for output in engine.step():
                assert not output.error
                outputs[int(output.request_id)] += output.token_ids
                reasons[int(output.request_id)] = output.finish_reason
        self.stats = engine.stats()
        return reasons


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(make_checkpoint(tmp_path_factory.mktemp("model"), "llama"))


def guided(kind: GuideKind, text: str, *, seed: int = 0) -> SamplingParams:
    """Hot, so that a number or a list does not go on for ever."""
    return SamplingParams(max_tokens=MAX_TOKENS, temperature=2.0, seed=seed, guide=Guide(kind, text))


def json_guided(schema: Mapping[str, Any], *, seed: int = 0) -> SamplingParams:
    return guided(GuideKind.JSON_SCHEMA, json.dumps(schema), seed=seed)


def _integer(low: int, span: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": low + span}


def _array(items: dict[str, Any], low: int, span: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": low, "maxItems": low + span}


@st.composite
def _objects(draw: st.DrawFn, values: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    names = st.text('abc_ é"\\/', min_size=1, max_size=4)
    properties = draw(st.dictionaries(names, values, max_size=3))
    required = [name for name in properties if draw(st.booleans())]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


LEAVES = st.one_of(
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": "number"}, {"const": {"a": [1]}}]),
    st.builds(_integer, st.integers(-50, 50), st.integers(0, 1000)),
    st.builds(lambda length: {"type": "string", "maxLength": length}, st.integers(0, 8)),
    st.sampled_from([r"^[a-z]{2,5}$", r"^[A-Z]\d{3}(-x)?$", r"^(yes|no)!?$"]).map(
        lambda pattern: {"type": "string", "pattern": pattern}
    ),
    st.lists(st.sampled_from(["red", "grün", "a b", '"', 1, -2.5, None, True]), min_size=1, max_size=4).map(
        lambda values: {"enum": values}
    ),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda values: st.one_of(
        _objects(values),
        st.builds(_array, values, st.integers(0, 2), st.integers(0, 2)),
        st.lists(values, min_size=1, max_size=3).map(lambda options: {"anyOf": options}),
    ),
    max_leaves=6,
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(schemas=st.lists(SCHEMAS, min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_json_always_parses_and_is_valid(model: Model, schemas: list[dict[str, Any]], seed: int) -> None:
    texts = model.generate(*(json_guided(schema, seed=seed + i) for i, schema in enumerate(schemas)))
    for schema, text in zip(schemas, texts, strict=True):
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))


def test_any_object_is_an_object(model: Model) -> None:
    """What closes strings, lists and objects is favoured, or a random network would go on and on."""
    closers = tuple((model.token_id(char), 20.0) for char in '"]}')
    params = [replace(guided(GuideKind.JSON_OBJECT, "", seed=seed), logit_bias=closers) for seed in range(8)]
    for text in model.generate(*params):
        assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize(
    "pattern",
    [r"[a-c]{3}\d{1,6}-(x|yy)", r"(?i)head(way)?", r"[^\"\\x00-\\x1f]{5}", r"[a-z]{1,9}@[0-9]{3}\.(com|org)", r"é|ü?"],
)
def test_a_regular_expression_matches_from_end_to_end(model: Model, pattern: str) -> None:
    for text in model.generate(*(guided(GuideKind.REGEX, pattern, seed=seed) for seed in range(4))):
        assert re.fullmatch(pattern, text)


def test_a_choice_is_one_of_the_choices(model: Model) -> None:
    choices = ["red", "redder", "grün\n", 'a "quoted" \\ one', "列车"]
    texts = model.generate(*(guided(GuideKind.CHOICE, json.dumps(choices), seed=seed) for seed in range(32)))
    assert set(texts) <= set(choices)
    assert len(set(texts)) > 1


@pytest.mark.parametrize(
    "grammar",
    ['start: pair\npair: "(" pair? ")" | "[" pair? "]"', 'root ::= pair\npair ::= "(" pair? ")" | "[" pair? "]"'],
    ids=["lark", "gbnf"],
)
def test_a_grammar_is_followed_beyond_what_an_expression_can_say(model: Model, grammar: str) -> None:
    texts = model.generate(*(guided(GuideKind.GRAMMAR, grammar, seed=seed) for seed in range(8)))
    assert max(map(len, texts)) > 2
    for text in texts:
        assert all(text[i] + text[-1 - i] in {"()", "[]"} for i in range(len(text) // 2))


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40}, "sizes": _array(_integer(0, 10**6), 8, 0)},
    "required": ["name", "sizes"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("syntax", [TAGGED, BARE])
def test_a_required_call_is_a_call(model: Model, syntax: ToolSyntax) -> None:
    tools = (_tool("look", SCHEMA), _tool("wait", {"type": "object", "properties": {}, "additionalProperties": False}))
    toolbox = Toolbox(tools=tools, required=tools)
    params = [replace(guided(GuideKind.REGEX, "", seed=seed), guide=syntax.guide(toolbox)) for seed in range(6)]
    names = set()
    for text in model.generate(*params):
        parser = syntax.parser(toolbox)
        calls: dict[int, str] = {}
        for piece in [*parser.push(text), *parser.flush()]:
            assert isinstance(piece, CallDelta), f"these are words: {piece}"
            calls[piece.index] = calls.get(piece.index, "") + piece.arguments
            names.add(piece.name)
        for arguments in calls.values():
            document = json.loads(arguments)
            assert any(jsonschema.Draft202012Validator(tool.parameters).is_valid(document) for tool in tools)
    assert names - {""} == {"look", "wait"}


def _tool(name: str, parameters: dict[str, Any]) -> Tool:
    return Tool(name=name, parameters=parameters, document={})


def test_others_in_the_batch_are_not_changed(model: Model) -> None:
    greedy = SamplingParams(max_tokens=32, temperature=0.0)
    sampled = SamplingParams(max_tokens=32, temperature=0.8, seed=5, top_p=0.9)
    alone = [*model.generate(greedy), *model.generate(sampled)]
    together = model.generate(json_guided(SCHEMA), greedy, guided(GuideKind.REGEX, "[ab]{9}"), sampled)
    assert [together[1], together[3]] == alone


def test_preemption_and_resumption_change_nothing(model: Model) -> None:
    params = [json_guided(SCHEMA, seed=seed) for seed in range(4)]
    texts = model.generate(*params)
    assert model.stats.num_preemptions == 0
    assert model.generate(*params, num_blocks=18) == texts
    assert model.stats.num_preemptions > 0
    assert model.generate(*params, num_given=7) == texts


def test_samples_of_one_request_go_their_own_ways(model: Model) -> None:
    params = [json_guided(SCHEMA, seed=seed) for seed in range(4)]
    texts = model.generate(*params)
    assert len(set(texts)) == 4
    assert model.generate(*params, is_group=True) == texts


def test_speculation_changes_nothing(model: Model) -> None:
    """A list of like numbers, which is easily guessed."""
    schema = _array({"enum": [123456789, 123456780]}, 12, 0)
    params = [replace(json_guided(schema, seed=seed), temperature=0.0) for seed in range(3)]
    texts = model.generate(*params)
    assert model.generate(*params, num_draft_tokens=4) == texts
    assert model.stats.num_accepted_tokens > 0


def test_a_guide_that_fails_ends_its_own_sequence_alone(model: Model) -> None:
    engine = Engine(
        EngineConfig(num_blocks=64, max_model_len=256, vocab_size=512), runner=model.runner, clock=time.perf_counter
    )
    outside = SamplingParams(max_tokens=8, guide=Guide(GuideKind.REGEX, "a+"))
    inside = SamplingParams(max_tokens=8, temperature=0.0)
    for request_id, sampling, given_tokens in (("bad", outside, (100,)), ("good", inside, ())):
        request = GenerationRequest(
            request_id=request_id,
            model="m",
            prompt_token_ids=PROMPT,
            output_token_ids=given_tokens,
            sampling=sampling,
        )
        engine.submit(request)
    ends = {}
    while engine.has_work:
        ends |= {output.request_id: output for output in engine.step() if output.finish_reason}
        engine.check_integrity()
    assert ends["bad"].finish_reason is FinishReason.ERROR
    assert "satisfy the grammar" in ends["bad"].error
    assert ends["good"].finish_reason is FinishReason.LENGTH
