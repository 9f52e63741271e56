"""The items of a response, and the events from which a client makes them again."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.gateway.openai.response_output import Event, ResponseOutput
from headway.gateway.tools.call import CallDelta
from headway.gateway.tools.parser import Piece
from headway.gateway.tools.reasoning import Reasoning

TEXTS = st.sampled_from(["a", "é", " b"])


@st.composite
def answers(draw: st.DrawFn) -> list[Piece]:
    """Runs of words, reasoning and calls, as parsers give them: a call's name comes first, and once."""
    pieces: list[Piece] = []
    num_calls = 0
    for kind in draw(st.lists(st.sampled_from(["words", "reasoning", "call"]), max_size=6)):
        texts = draw(st.lists(TEXTS, min_size=1, max_size=3))
        if kind == "call":
            pieces += [CallDelta(num_calls, "f"), *(CallDelta(num_calls, arguments=text) for text in texts)]
            num_calls += 1
        else:
            pieces += [Reasoning(text) if kind == "reasoning" else text for text in texts]
    return pieces


def rebuilt(events: list[Event]) -> list[dict[str, Any]]:
    """The items as a client has them that believes nothing but what is added to them."""
    items: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(items), "one item after the other"
            items.append({**event["item"]})
        elif kind == "content_part.added":
            items[event["output_index"]]["content"] = [{**event["part"]}]
        elif kind == "function_call_arguments.delta":
            items[event["output_index"]]["arguments"] += event["delta"]
        elif kind in {"output_text.delta", "reasoning_text.delta"}:
            items[event["output_index"]]["content"][event["content_index"]]["text"] += event["delta"]
        elif kind == "output_item.done":
            items[event["output_index"]]["status"] = event["item"]["status"]
            assert event["item"] == items[event["output_index"]]
        assert event.get("item_id", items[-1]["id"]) == items[-1]["id"], "only the last item grows"
    return items


@settings(max_examples=50, deadline=None)
@given(pieces=answers(), status=st.sampled_from(["completed", "incomplete"]))
def test_a_client_that_adds_up_the_events_has_the_items(pieces: list[Piece], status: str) -> None:
    output = ResponseOutput()
    events = [event for piece in pieces for event in output.take(piece)] + output.close(status)
    assert rebuilt(events) == output.items
    assert [item["status"] for item in output.items] == ["completed"] * (len(output.items) - 1) + [status][
        : len(pieces)
    ]
    words = "".join(item["content"][0]["text"] for item in output.items if item["type"] == "message")
    assert words == "".join(piece for piece in pieces if isinstance(piece, str))


def test_reasoning_is_told_from_the_rest() -> None:
    output = ResponseOutput()
    seen = []
    for piece in (Reasoning("Hm."), "So.", CallDelta(0, "f")):
        output.take(piece)
        seen.append(output.is_reasoning)
    assert seen == [True, False, False]
