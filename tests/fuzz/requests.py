"""What a client sends, as JSON, and the chat templates that render it."""

import json
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from headway.core.grammar import grammar_fault
from headway.core.request import Guide, GuideKind
from headway.core.sampling_defaults import SamplingDefaults
from headway.gateway.openai.body import parse_json
from headway.gateway.openai.ignored import IgnoredFields
from headway.gateway.openai.infer_schema import ClassifyRequest, EmbeddingRequest, RerankRequest, ScoreRequest
from headway.gateway.openai.response_schema import ResponseRequest
from headway.gateway.openai.schema import ChatRequest, CompletionRequest, read_request
from headway.gateway.openai.size import check_depth, check_size
from headway.gateway.text.template import ChatTemplate
from headway.runner.guide import Guides
from tests.fuzz.mutation import garble
from tests.fuzz.target import reads_bytes, reads_json
from tests.gateway.world import CHAT_TEMPLATE, byte_level

COMPLETION: dict[str, Any] = {
    "model": "tiny",
    "prompt": ["one", "two"],
    "max_tokens": 5,
    "temperature": 0.7,
    "top_p": 0.9,
    "n": 2,
    "stop": ["end", "\n"],
    "logit_bias": {"17": 1.5, "18": -100},
    "logprobs": 3,
    "seed": 4,
    "stream": True,
    "stream_options": {"include_usage": True},
    "structured_outputs": {"regex": "a+b"},
    "slo_ms": 100,
    "priority": 3,
}
CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"place": "Bern"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
            },
        }
    ],
    "tool_choice": {"type": "function", "function": {"name": "weather"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
    "chat_template_kwargs": {"enable_thinking": False},
    "max_completion_tokens": 5,
    "logprobs": True,
    "top_logprobs": 2,
}
RESPONSE: dict[str, Any] = {
    "model": "tiny",
    "instructions": "Be short.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "1", "name": "weather", "arguments": '{"place": "Bern"}'},
        {"type": "function_call_output", "call_id": "1", "output": "rain"},
    ],
    "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}],
    "tool_choice": {"type": "function", "name": "weather"},
    "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
    "reasoning": {"effort": "low"},
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 2,
    "max_output_tokens": 5,
    "store": False,
}
DEFAULTS = SamplingDefaults()


def read(kind: type[Any], content: bytes) -> Any:
    body = parse_json(content)
    check_depth(body, content)
    check_size(body, max_sequences=256)
    return read_request(kind, body, ignored=IgnoredFields(is_strict=False))


def read_generation(kind: type[Any], content: bytes) -> None:
    request = read(kind, content)
    request.options(DEFAULTS).check(vocab_size=400)
    assert request.parts is not None
    if isinstance(request, (ChatRequest, ResponseRequest)):
        assert request.toolbox is None or request.tools
        ChatTemplate(CHAT_TEMPLATE).render(request.chat_messages(), options=request.template_variables)


@reads_json(
    COMPLETION,
    {"model": "tiny", "prompt": [[1, 2], [3]], "guided_choice": ["yes"]},
    {"model": "tiny", "prompt": "a", "bad_words": ["no"]},
)
def completions(content: bytes) -> None:
    read_generation(CompletionRequest, content)


@reads_json(CHAT)
def chats(content: bytes) -> None:
    read_generation(ChatRequest, content)


@reads_json(RESPONSE)
def responses(content: bytes) -> None:
    read_generation(ResponseRequest, content)


@reads_json({"model": "e", "input": ["a", [1, 2]], "dimensions": 4, "encoding_format": "base64"})
def embeddings(content: bytes) -> None:
    read(EmbeddingRequest, content)


@reads_json({"model": "e", "input": ["a", "b"]})
def classifications(content: bytes) -> None:
    read(ClassifyRequest, content)


@reads_json({"model": "e", "query": "a", "documents": ["b", {"text": "c"}], "top_n": 1})
def rerankings(content: bytes) -> None:
    read(RerankRequest, content)


@reads_json({"model": "e", "text_1": "a", "text_2": ["b", {"text": "c"}], "truncate_prompt_tokens": -1})
def scores(content: bytes) -> None:
    read(ScoreRequest, content)


@reads_bytes(json.dumps(CHAT).encode())
def bodies(content: bytes) -> None:
    read_generation(ChatRequest, content)


@reads_json({"regex": "a+(b|c)"}, {"choice": ["yes", "no"]}, {"json": {"type": "object"}}, {"grammar": 'start: "a"'})
def guides(content: bytes) -> None:
    """What the gateway accepts, a worker compiles, or it says why not."""
    body = {"model": "tiny", "prompt": "a", "structured_outputs": parse_json(content)}
    guide = read(CompletionRequest, json.dumps(body).encode()).constraints.guide
    if guide is not None and not grammar_fault(guide):
        assert isinstance(_guides().prepare(guide), str)


@cache
def _guides() -> Guides:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "tokenizer.json"
        byte_level().save(str(file))
        made = Guides(file, vocab_size=400, eos_token_ids=(1,))
        assert not made.prepare(Guide(GuideKind.REGEX, "a"))  # the tokenizer is read when it is first wanted
    return made


_PIECES = (
    *("{{ ", " }}", "{% if ", " %}", "{% endif %}", "{% for a in ", "{% endfor %}", "messages", "[0]", ".content"),
    *("|upper", "raise_exception('a')", "''.__class__", ".__mro__", "namespace(a=1)", "|tojson", "{% set a = 1 %}"),
    *("{# ", " #}", "1/0", "~", "()", "|attr('x')", "range(10)", "strftime_now('%Y')", "{% macro a() %}", "**", "'"),
)


def _rewrite(source: bytes, random: Random) -> bytes:
    """A template with pieces of the language put in, or garbled."""
    if random.random() < 0.3:
        return garble(source, random)
    at = random.randint(0, len(source))
    return source[:at] + random.choice(_PIECES).encode() + source[at:]


@reads_bytes(CHAT_TEMPLATE.encode(), b"", mutate=_rewrite)
def templates(source: bytes) -> None:
    text = ChatTemplate(source.decode(errors="replace")).render([{"role": "user", "content": "a"}])
    assert "object at 0x" not in text, "a template has got at Python's objects"
