"""The event reader, on every way that bytes can be cut."""

import pytest

from benchmarks.serve.stream import CompletionStream

EVENTS = (
    b'data: {"choices":[{"text":"a"}]}\n\n'
    b": a comment\n\n"
    b'data: {"choices":[{"text":"b"}],"usage":null}\n\n'
    b'data: {"choices":[{"text":""}]}\n\n'
    b'data: {"choices":[],"usage":{"completion_tokens":3}}\n\n'
    b"data: [DONE]\n\n"
)


def read(*pieces: bytes) -> CompletionStream:
    ticks = iter(range(1000))
    stream = CompletionStream(lambda: float(next(ticks)))
    for piece in pieces:
        stream.feed(piece)
    stream.read()
    return stream


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_any_cut_gives_the_same_events(size: int, newline: bytes) -> None:
    body = EVENTS.replace(b"\n", newline)
    stream = read(*(body[start : start + size] for start in range(0, len(body), size)))
    assert len(stream.token_times_s) == 2
    assert stream.texts == ["a", "b"]
    assert (stream.num_tokens, stream.done, stream.error) == (3, True, "")


def test_only_text_counts_as_a_token_event() -> None:
    first, second = b'data: {"choices":[{"text":""}]}\n\n', b'data: {"choices":[{"text":"a"}]}\n\n'
    assert read(first, second).token_times_s == [1.0]


def test_an_error_event_is_reported() -> None:
    assert read(b'data: {"error":{"message":"no blocks left","code":500}}\n\n').error == "no blocks left"


def test_an_error_document_is_reported() -> None:
    assert read(b'{"error":{"message":"The model does not exist."}}').error == "The model does not exist."


def test_an_end_marker_without_a_blank_line_counts() -> None:
    assert read(b"data: [DONE]").done


@pytest.mark.parametrize("data", [b"data: oops\n\n", b"data: [1]\n\n"])
def test_anything_else_is_an_error(data: bytes) -> None:
    assert read(data).error.startswith("not ")
