"""Stop strings: the cut of the text into pieces makes no difference."""

import sys
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headway.gateway.text.stop import StopScanner

ALPHABET = st.text(alphabet="ab.", max_size=30)
STOPS = st.lists(st.text(alphabet="ab.", min_size=1, max_size=5), min_size=1, max_size=5)


def scan(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    scanner = StopScanner(stops)
    out = ""
    for piece in pieces:
        text, found = scanner.push(piece)
        out += text
        if found:
            return out, True
    return out + scanner.flush(), False


def expected(stops: list[str], text: str, *, num_exempt: int = 0) -> tuple[str, bool]:
    """Character by character: the first end of any stop string cuts at its start."""
    for end in range(num_exempt + 1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


@given(stops=STOPS, pieces=st.lists(ALPHABET, max_size=8))
def test_the_first_stop_string_ends_the_text_however_it_is_cut(stops: list[str], pieces: list[str]) -> None:
    assert scan(stops, pieces) == expected(stops, "".join(pieces))


@given(stops=STOPS, pieces=st.lists(ALPHABET, max_size=8), num_exempt=st.integers(0, 40))
def test_one_that_ends_too_early_is_passed_over_and_one_that_only_begins_there_is_not(
    stops: list[str], pieces: list[str], num_exempt: int
) -> None:
    scanner, out, found, num_left = StopScanner(stops), "", False, num_exempt
    for piece in pieces:
        text, found = scanner.push(piece, num_exempt=max(0, num_left))
        num_left -= len(piece)
        out += text
        if found:
            break
    assert (out if found else out + scanner.flush(), found) == expected(stops, "".join(pieces), num_exempt=num_exempt)


def test_texts_that_nearly_are_stop_strings_cost_no_more_than_others() -> None:
    """Or one request of 128 samples, whose model repeats a letter, takes more of the gateway than of the model."""
    scanner = StopScanner(["a" * 255 + "b", *("ab" * 127 + str(number) for number in range(10))])
    assert scanner.push("a" * 300) == ("a" * 45, False)
    num_lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal num_lines
        num_lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        assert scanner.push("a") == ("a", False)
    finally:
        sys.settrace(before)
    assert num_lines < 500, "thousands, where each beginning of each is compared"


@given(stops=STOPS, pieces=st.lists(ALPHABET, max_size=8))
def test_no_more_is_held_than_may_become_a_stop_string(stops: list[str], pieces: list[str]) -> None:
    scanner = StopScanner(stops)
    for piece in pieces:
        if scanner.push(piece)[1]:
            return
    held = scanner.flush()
    assert not held or any(stop.startswith(held) and stop != held for stop in stops)
