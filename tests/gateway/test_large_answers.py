"""Answers of which one takes as much to write as thousands of others do: nobody else waits meanwhile."""

import asyncio
import random
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from starlette.types import Message

from headway.core.answer_record import AnswerRecord
from headway.core.errors import InvalidArgumentError
from headway.core.request import FinishReason, SequenceOutput, TokenLogprobs
from headway.core.slo import Slo
from headway.gateway.answer_journal import AnswerJournal
from headway.gateway.job import Arrival, Delta, Job, Prompt, Usage, make_job
from headway.gateway.link import Links
from headway.gateway.measure import ModelMetrics
from headway.gateway.openai.answer import send_document
from headway.gateway.openai.completion import CompletionFormat
from headway.gateway.openai.format import AnswerParts
from headway.gateway.openai.pieces import dumps_in_pieces
from headway.gateway.options import Options
from headway.gateway.quarantine import Quarantine
from headway.gateway.run import Run
from headway.gateway.threads import Threads
from headway.store.answers import AnswerStore
from headway.store.redis import Database
from tests.gateway.scripted_router import ScriptedRouter
from tests.gateway.test_size import make_model

ENTRY = TokenLogprobs(20, -0.5, 1, tuple((20 + i, -0.5 - i) for i in range(20)))


def any_document(draw: random.Random, depth: int = 4) -> Any:
    """Some of its lists are longer than a piece."""
    kind = draw.randrange(8 if depth else 5)
    if kind < 5:
        return draw.choice([None, True, 1.5, -7, "", 'é"\\ \u2028', np.arange(5, dtype=np.float32)])
    children = [any_document(draw, depth - 1) for _ in range(draw.choice([0, 1, 5, 70]))]
    return children if kind < 7 else {f"{i}é": child for i, child in enumerate(children)}


@pytest.mark.parametrize("seed", range(10))
def test_pieces_are_the_same_document(seed: int) -> None:
    document = {"choices": [any_document(random.Random(seed)) for _ in range(40)], "empty": [{}, []]}
    assert dumps_in_pieces(document) == orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def job_of(directory: Path, journal: AnswerJournal | None = None, *, prompt_tokens: int = 2, **options: Any) -> Job:
    model = make_model(directory, max_model_len=1 << 20)
    prompt = Prompt(token_ids=(5,) * prompt_tokens, field="prompt")
    arrival = Arrival(at_s=time.monotonic(), slo=Slo(), journal=journal)
    return make_job(
        request_id="r", model=model, prompts=[prompt], options=Options(**options), arrival=arrival, random_seed=1
    )


class Format(CompletionFormat):
    """Notes where its document is made."""

    def document(self, deltas: Any, usage: Usage) -> dict[str, Any]:
        self.thread = threading.get_ident()
        return super().document(deltas, usage)


@pytest.mark.parametrize(("num_tokens", "logprobs", "is_beside"), [(3, None, False), (5000, None, True), (3, 20, True)])
async def test_large_documents_are_made_beside_the_event_loop_and_small_ones_in_it(
    tmp_path: Path, num_tokens: int, logprobs: int | None, *, is_beside: bool
) -> None:
    job = job_of(tmp_path, max_tokens=num_tokens, num_logprobs=logprobs)
    form, sent = Format(job, echo=False, parts=AnswerParts()), list[Message]()

    async def deltas() -> AsyncGenerator[list[Delta], None]:
        entries = (ENTRY,) if logprobs else ()
        for number in range(num_tokens):
            reason = FinishReason.LENGTH if number == num_tokens - 1 else None
            yield [
                Delta(
                    index=0, text="a", token_ids=(20,), logprobs=entries, text_offsets=(number,), finish_reason=reason
                )
            ]

    async def send(message: Message) -> None:
        sent.append(message)

    await send_document(send, job, deltas(), form=form, threads=Threads())
    assert (form.thread != threading.get_ident()) == is_beside
    assert orjson.loads(sent[1]["body"])["choices"][0]["text"] == "a" * num_tokens


async def test_an_answer_of_too_many_log_probabilities_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """128 samples of 2,000 tokens would be 350 MB of JSON."""
    monkeypatch.setattr("headway.gateway.openai.answer._MAX_LOGPROBS", 100)
    job, has_ended = job_of(tmp_path, max_tokens=10, num_logprobs=20), False

    async def deltas() -> AsyncGenerator[list[Delta], None]:
        nonlocal has_ended
        try:
            for number in range(10):
                yield [Delta(index=0, text="a", token_ids=(20,), logprobs=(ENTRY,), text_offsets=(number,))]
        finally:
            has_ended = True

    async def send(message: Message) -> None:
        raise AssertionError(f"nothing is sent of it: {message}")

    form = Format(job, echo=False, parts=AnswerParts())
    with pytest.raises(InvalidArgumentError, match="more than 100 log probabilities"):
        await send_document(send, job, deltas(), form=form, threads=Threads())
    assert has_ended


@pytest.mark.parametrize(("n", "num_top", "is_much"), [(128, 20, True), (1, 20, False), (128, 0, False)])
def test_prompt_logprobs_of_all_choices_are_counted(tmp_path: Path, n: int, num_top: int, *, is_much: bool) -> None:
    """Each choice has those of the whole prompt, and the first step of all of them is one message, which could be too
    large for the stream that all requests share."""
    context = pytest.raises(InvalidArgumentError, match="1344000 log prob") if is_much else nullcontext()
    with context:
        job_of(tmp_path, prompt_tokens=500, max_tokens=1, n=n, num_prompt_logprobs=num_top)


async def test_a_journal_that_grows_too_long_is_kept_no_longer(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """128 samples with log probabilities would take hundreds of megabytes of Redis, for ten minutes each."""
    monkeypatch.setattr("headway.gateway.answer_journal._MAX_NUMBERS", 100)
    record = AnswerRecord(answer_id="long", tenant="", body_hash="b", created_s=1)
    book = AnswerStore(database)
    journal = AnswerJournal(book, record)
    output = SequenceOutput("0", (20,), logprobs=(ENTRY,))
    for _ in range(4):
        await journal.note([output], has_ended=False)
    assert journal.is_kept
    taken = await AnswerJournal.take(book, "long", tenant="", body_hash="b")
    assert taken.record.outputs == (output,) * 4
    await taken.note([output], has_ended=False)
    assert not taken.is_kept
    assert await book.find("long") is None
    assert await database.redis.keys(f"{database.namespace}:answer*") == []


async def test_others_have_their_turn_while_a_long_stream_is_told_again(tmp_path: Path) -> None:
    outputs = tuple(SequenceOutput("0", (20,)) for _ in range(1000))
    last = SequenceOutput("0", (20,), finish_reason=FinishReason.LENGTH)
    record = AnswerRecord(answer_id="a", tenant="", body_hash="b", created_s=1, outputs=(*outputs, last))
    job = job_of(tmp_path, AnswerJournal(None, record), max_tokens=2000)  # type: ignore[arg-type]
    run = Run(
        job,
        0,
        router=ScriptedRouter(),  # type: ignore[arg-type] - nothing is left to ask it for
        links=Links(None),  # type: ignore[arg-type]
        sole_replicas={},
        metrics=ModelMetrics("m"),
        quarantine=Quarantine(time.monotonic),
        resume_timeout_s=1,
        clock=time.monotonic,
    )
    num_turns, is_over = 0, False

    async def others() -> None:
        nonlocal num_turns
        while not is_over:
            num_turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    told = [deltas async for deltas in run.deltas()]
    is_over = True
    await beside
    assert len(told) == 1001
    assert num_turns > 10
