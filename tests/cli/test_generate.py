import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.client.scripted import WORDS, ScriptedService

TEXT = "".join(WORDS)


def test_the_text_is_printed(headway: Run, endpoint: str) -> None:
    result = headway("generate", "Tell", "--endpoint", endpoint)
    assert (result.returncode, result.stdout) == (0, f"{TEXT}\n")


def test_a_dash_reads_the_prompt_from_standard_input(headway: Run, endpoint: str, service: ScriptedService) -> None:
    headway("generate", "-", "--endpoint", endpoint, stdin="Tell me")
    assert service.requests[0].text == "Tell me"


def test_several_texts_are_numbered(headway: Run, endpoint: str) -> None:
    result = headway("generate", "Tell", "-n", "2", "--endpoint", endpoint)
    assert result.stdout == f"[0] {TEXT}\n[1] {TEXT}\n"


def test_options_reach_the_server_and_the_others_stay_absent(
    headway: Run, endpoint: str, service: ScriptedService
) -> None:
    headway("generate", "Tell", "--max-tokens", "4", "--stop", "a", "--stop", "b", "--endpoint", endpoint)
    options = service.requests[0].options
    assert (options.max_tokens, list(options.stop)) == (4, ["a", "b"])
    assert {field.name for field, _ in options.ListFields()} == {"max_tokens", "stop"}


def test_an_answer_can_be_guided(headway: Run, endpoint: str, service: ScriptedService, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "object"}')
    headway("generate", "Tell", "--json-schema", str(file), "--bad-word", "x", "--endpoint", endpoint)
    headway("generate", "Tell", "--choice", "a", "--choice", "b", "--endpoint", endpoint)
    guides = [request.options.guide for request in service.requests]
    assert [(guide.kind, guide.text) for guide in guides] == [
        ("json_schema", '{"type": "object"}'),
        ("choice", '["a", "b"]'),
    ]
    assert list(service.requests[0].options.bad_words) == ["x"]


def test_a_schema_that_is_not_there_is_told(headway: Run, endpoint: str) -> None:
    result = headway("generate", "Tell", "--json-schema", "/not/there.json", "--endpoint", endpoint)
    assert result.returncode == 1
    assert "/not/there.json cannot be read" in result.stderr
    assert "Traceback" not in result.stderr


def test_json_holds_the_whole_answer(headway: Run, endpoint: str) -> None:
    result = headway("generate", "Tell", "--json", "--logprobs", "0", "--request-id", "r1", "--endpoint", endpoint)
    answer = json.loads(result.stdout)
    assert answer["request_id"] == "r1"
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 5, "cached_tokens": 1}
    (choice,) = answer["choices"]
    assert (choice["text"], choice["token_ids"], choice["finish_reason"]) == (TEXT, [0, 1, 2, 3, 4], "stop")
    assert len(choice["logprobs"]) == 5


def test_a_refusal_exits_with_1(headway: Run, endpoint: str) -> None:
    result = headway("generate", "Tell", "--model", "huge", "--endpoint", endpoint)
    assert result.returncode == 1
    assert result.stderr == "error: There is no model huge.\nhint: Ask for tiny.\n"


def test_nobody_there_is_told_without_a_traceback(headway: Run) -> None:
    result = headway("generate", "Tell", "--endpoint", "127.0.0.1:1")
    assert result.returncode == 1
    assert "cannot be reached" in result.stderr
    assert "Traceback" not in result.stderr
