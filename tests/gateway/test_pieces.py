"""Large bodies are parsed in pieces: with the same result, and never much at a time."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidArgumentError
from headway.gateway.openai import pieces
from headway.gateway.openai.body import parse_json
from headway.gateway.openai.pieces import loads_in_pieces

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=6) | st.sampled_from(['"', "\\", ","])
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(st.sampled_from(["", "a", '"', "\\\\", '\\\\"', "b,", "c]"]), inner)
    ),
    max_leaves=30,
)


@st.composite
def texts(draw: Any) -> bytes:
    """JSON, of which half has something cut out, put in or doubled."""
    text = json.dumps(
        draw(DOCUMENTS), indent=draw(st.sampled_from([None, 1])), ensure_ascii=draw(st.booleans())
    ).encode()
    if draw(st.booleans()):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 8)))
        text = (
            text[:start]
            + draw(st.sampled_from([b"", b",", b"]", b"}", b"[", b"{", b'"', text[start:end] * 2]))
            + text[end:]
        )
    return text


def outcome(parse: Any) -> Any:
    try:
        return parse()
    except orjson.JSONDecodeError:
        return orjson.JSONDecodeError


@settings(derandomize=True, deadline=None, max_examples=300, database=None)
@given(text=texts(), piece_bytes=st.integers(1, 20))
def test_pieces_come_to_the_same_as_the_whole(text: bytes, piece_bytes: int) -> None:
    expected = outcome(lambda: orjson.loads(text))
    assert outcome(lambda: loads_in_pieces(text, piece_bytes=piece_bytes)) == expected


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":[1,2,3,[4,5],6],"b":7}',
        b'{"a":{"x":1,"a":[1,2]},"a":[3,4],"b":{"c":[{"d":1},{"e":[2,3]}]}}',
        b'{"b":1,"a":{"c":1},"b":{"d":2,"e":3,"f":[4,5]}}',
        b"[1,2,]",
        b"[1,2,3} ",
        b"[1,2],[3,4]",
        b'{"a":1,"b"}',
        b'[1,"2,3',
        b"[[1,2],,3]",
        b"[[,null]]",
        b"[1, ,2]",
        b'{"a":{,"b":1}}',
        b"[1,2,3",
        b"",
        b'{"a":1,"b":}',
    ],
)
def test_each_cut_of_what_is_hard_to_cut(text: bytes) -> None:
    expected = outcome(lambda: orjson.loads(text))
    for piece_bytes in range(1, 12):
        assert outcome(lambda size=piece_bytes: loads_in_pieces(text, piece_bytes=size)) == expected


@pytest.mark.parametrize(
    "item", [b"1", b"[]", b'{"a":[1.5]}', b'"text, [with] brackets"'], ids=["numbers", "lists", "objects", "strings"]
)
def test_the_interpreter_is_held_for_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch, item: bytes) -> None:
    """Issue 30, row 2: a body of 8 MiB was parsed in one go, for a tenth of a second and more."""
    sizes: list[int] = []

    class Parser:
        JSONDecodeError = orjson.JSONDecodeError

        @staticmethod
        def loads(content: bytes) -> Any:
            sizes.append(len(content))
            return orjson.loads(content)

    monkeypatch.setattr(pieces, "orjson", Parser)
    body = b'{"model":"m","prompt":{"deep":[' + b",".join([item] * (300_000 // max(len(item), 3))) + b']},"n":1}'
    assert parse_json(body) == orjson.loads(body)
    assert max(sizes) < 140 * 1024
    assert len(sizes) >= len(body) // max(sizes)


def test_more_lists_than_any_request_needs_are_refused() -> None:
    """Each makes the interpreter's collection of garbage longer, which nothing can interrupt."""
    with pytest.raises(InvalidArgumentError, match="more than 131072 lists and objects"):
        parse_json(b'{"prompt":[' + b",".join([b"[]"] * 140_000) + b"]}")


def test_what_is_wrong_with_a_large_body_is_said() -> None:
    body = b'{"prompt":[' + b"1," * 200_000 + b"]}"
    with pytest.raises(InvalidArgumentError, match="not valid JSON: trailing comma"):
        parse_json(body)
