"""The command `headway chat`."""

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated

import typer

from headway.cli import sampling
from headway.cli.options import ApiKey, Endpoint, StateDir
from headway.cli.prompt_history import remembering_lines
from headway.client import Client, GenerateOptions, Message
from headway.core.errors import HeadwayError, UnavailableError

app = typer.Typer(add_completion=False)

_HELP = "/clear forgets the conversation, /exit (or Ctrl-D) leaves, Ctrl-C stops an answer."


@app.command()
def chat(
    *,
    model: sampling.Model = None,
    system: Annotated[str | None, typer.Option(help="Instructions that stand before the conversation.")] = None,
    max_tokens: sampling.MaxTokens = None,
    temperature: sampling.Temperature = None,
    top_k: sampling.TopK = None,
    top_p: sampling.TopP = None,
    min_p: sampling.MinP = None,
    seed: sampling.Seed = None,
    stop: sampling.Stop = None,
    state_dir: StateDir = None,
    endpoint: Endpoint = None,
    api_key: ApiKey = None,
) -> None:
    """Talk to a model. Lines that are piped in are answered one by one."""
    options = sampling.given(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        stop=stop,
    )
    with Client(endpoint, api_key=api_key, state_dir=state_dir) as client:
        _Conversation(client, model=model, system=system, options=options).run()


class _Conversation:
    def __init__(self, client: Client, *, model: str | None, system: str | None, options: GenerateOptions) -> None:
        self._client = client
        self._model = model
        self._options = options
        self._start: list[Message] = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._start)

    def run(self) -> None:
        is_terminal = sys.stdin.isatty()
        for line in _typed_lines() if is_terminal else sys.stdin:
            text = line.strip()
            if text == "/exit":
                return
            if text == "/clear":
                self._messages = list(self._start)
            elif text.startswith("/"):
                typer.echo(_HELP)
            elif text:
                self._answer(text, forgive=is_terminal)

    def _answer(self, text: str, *, forgive: bool) -> None:
        """Streams the answer to one question. A question that is refused is forgotten; at a terminal the conversation
        goes on."""
        question = {"role": "user", "content": text}
        try:
            answer = self._stream([*self._messages, question])
        except HeadwayError as error:
            if not forgive or isinstance(error, UnavailableError):
                raise
            typer.secho(f"error: {error}", fg="red", err=True)
            return
        self._messages += [question, {"role": "assistant", "content": answer}]

    def _stream(self, messages: list[Message]) -> str:
        answer = ""
        with closing(self._client.generate(messages, model=self._model, **self._options)) as chunks:
            try:
                for chunk in chunks:
                    typer.echo(chunk.text, nl=False)
                    answer += chunk.text
            except KeyboardInterrupt:
                typer.echo(" [stopped]", nl=False)
        typer.echo()
        return answer


def _typed_lines() -> Iterator[str]:
    """Yields the lines that are typed, until Ctrl-D; Ctrl-C drops the line that is being typed."""
    typer.echo(_HELP)
    with remembering_lines():
        while True:
            try:
                yield input("> ")
            except EOFError:
                typer.echo()
                return
            except KeyboardInterrupt:
                typer.echo()
