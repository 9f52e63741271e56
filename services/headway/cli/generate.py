"""The command `headway generate`."""

import json
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli import sampling
from headway.cli.options import ApiKey, AsJson, Endpoint, StateDir
from headway.client import Chunk, Client
from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError
from headway.core.request import EarlyStopping

app = typer.Typer(add_completion=False)


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="The text to go on from; '-' reads it from standard input.")],
    *,
    model: sampling.Model = None,
    max_tokens: sampling.MaxTokens = None,
    temperature: sampling.Temperature = None,
    top_k: sampling.TopK = None,
    top_p: sampling.TopP = None,
    min_p: sampling.MinP = None,
    presence_penalty: Annotated[
        float | None, typer.Option(min=-2, max=2, help="Above 0: fewer tokens that the text has already.")
    ] = None,
    frequency_penalty: Annotated[
        float | None, typer.Option(min=-2, max=2, help="Above 0: fewer of a token the more often the text has it.")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(min=0, help="Above 1: fewer tokens of prompt and text; 1 is none.")
    ] = None,
    seed: sampling.Seed = None,
    stop: sampling.Stop = None,
    ignore_eos: Annotated[bool | None, typer.Option("--ignore-eos", help="Go on past the end of the text.")] = None,
    min_tokens: Annotated[int | None, typer.Option(min=0, help="Output tokens at least.")] = None,
    logprobs: Annotated[int | None, typer.Option(min=0, help="With --json: log probabilities, n others too.")] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Texts to generate.")] = None,
    best_of: Annotated[int | None, typer.Option(min=1, help="Samples to choose the n most likely from.")] = None,
    beam_width: Annotated[int | None, typer.Option(min=2, help="Beam search of this width, not sampling.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Of a beam search: above 0 favours long texts.")] = None,
    early_stopping: Annotated[EarlyStopping | None, typer.Option(help="Of a beam search.")] = None,
    json_schema: Annotated[Path | None, typer.Option(help="Answer in JSON of the schema in this file.")] = None,
    regex: Annotated[str | None, typer.Option(help="Answer with a match of this regular expression.")] = None,
    choice: Annotated[list[str] | None, typer.Option(help="Answer with one of these. May be repeated.")] = None,
    grammar: Annotated[
        Path | None, typer.Option(help="Answer in the language of the grammar in this file, Lark or GBNF.")
    ] = None,
    bad_word: Annotated[list[str] | None, typer.Option(help="A text that must not appear. May be repeated.")] = None,
    slo_ttft_s: Annotated[float | None, typer.Option(min=0, help="Objective: seconds to the first token.")] = None,
    slo_tpot_s: Annotated[float | None, typer.Option(min=0, help="Objective: seconds per token after it.")] = None,
    slo_ms: Annotated[
        float | None, typer.Option(min=0, help="Objective: milliseconds to the end of the answer.")
    ] = None,
    request_id: Annotated[str | None, typer.Option(help="Appears in every log line.")] = None,
    timeout_s: Annotated[float | None, typer.Option(min=0, help="Seconds for the whole answer.")] = None,
    state_dir: StateDir = None,
    endpoint: Endpoint = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Complete a prompt."""
    options = sampling.given(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        repetition_penalty=repetition_penalty,
        seed=seed,
        stop=stop,
        ignore_eos=ignore_eos,
        min_tokens=min_tokens,
        logprobs=logprobs,
        n=n,
        best_of=best_of,
        beam_width=beam_width,
        length_penalty=length_penalty,
        early_stopping=early_stopping and early_stopping.value,
        json_schema=json_schema and _read(json_schema),
        regex=regex,
        choice=choice,
        grammar=grammar and _read(grammar),
        bad_words=bad_word,
        slo_ttft_s=slo_ttft_s,
        slo_tpot_s=slo_tpot_s,
        slo_ms=slo_ms,
        request_id=request_id,
        timeout_s=timeout_s,
    )
    text = sys.stdin.read() if prompt == "-" else prompt
    with (
        Client(endpoint, api_key=api_key, state_dir=state_dir) as client,
        closing(client.generate(text, model=model, **options)) as chunks,
    ):
        if as_json:
            typer.echo(json.dumps(_collect(chunks), indent=2))
        elif (n or 1) > 1:
            _print_each(chunks)
        else:
            _print_stream(chunks)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error}.", hint="Give a text file.") from None


def _print_stream(chunks: Iterable[Chunk]) -> None:
    for chunk in chunks:
        typer.echo(chunk.text, nl=False)
    typer.echo()


def _print_each(chunks: Iterable[Chunk]) -> None:
    for choice in _collect(chunks)["choices"]:
        typer.echo(f"[{choice['index']}] {choice['text']}")


def _collect(chunks: Iterable[Chunk]) -> dict[str, Any]:
    """Collects the whole answer as a JSON document."""
    choices: dict[int, dict[str, Any]] = {}
    answer: dict[str, Any] = {"request_id": "", "choices": [], "usage": None}
    for chunk in chunks:
        answer["request_id"] = chunk.request_id or answer["request_id"]
        answer["usage"] = to_document(chunk.usage) or answer["usage"]
        if not chunk.text and not chunk.token_ids and chunk.finish_reason is None:
            continue
        choice = choices.setdefault(
            chunk.index, {"index": chunk.index, "text": "", "token_ids": [], "logprobs": [], "finish_reason": None}
        )
        choice["text"] += chunk.text
        choice["token_ids"] += chunk.token_ids
        choice["logprobs"] += to_document(chunk.logprobs)
        choice["finish_reason"] = chunk.finish_reason or choice["finish_reason"]
    answer["choices"] = [choices[index] for index in sorted(choices)]
    return answer
