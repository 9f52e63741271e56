"""Deltas add up to what decoding everything at once gives, for every kind of tokenizer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.gateway.text.byte_detokenizer import ByteDetokenizer
from headway.gateway.text.detokenizer import Detokenizer, make_detokenizer
from headway.gateway.text.tokenizer import Tokenizer, TokenKind
from headway.gateway.text.window_detokenizer import WindowDetokenizer
from tests.gateway.vocabularies import VOCABULARIES, byte_level, sentencepiece

TOKENIZERS = {name: Tokenizer(make()) for name, make in VOCABULARIES.items()}


def deltas(tokenizer: Tokenizer, token_ids: list[int]) -> list[str]:
    """Of the detokenizer that suits the tokenizer; the general one gives the same text."""
    windows, chosen = (
        [*_pieces(each, token_ids)] for each in (WindowDetokenizer(tokenizer), make_detokenizer(tokenizer))
    )
    assert "".join(windows) == "".join(chosen)
    return chosen


def _pieces(detokenizer: Detokenizer, token_ids: list[int]) -> list[str]:
    pieces = [detokenizer.push(token_id) for token_id in token_ids]
    pieces.append(detokenizer.flush())
    assert detokenizer.num_chars == sum(map(len, pieces))
    return pieces


def test_byte_level_vocabularies_are_joined_by_bytes() -> None:
    assert isinstance(make_detokenizer(TOKENIZERS["byte_level"]), ByteDetokenizer)
    assert isinstance(make_detokenizer(TOKENIZERS["sentencepiece"]), WindowDetokenizer)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_deltas_of_random_ids_add_up_to_the_full_decode(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    # Ids beyond the vocabulary too: models are often padded to a round size.
    token_ids = data.draw(st.lists(st.integers(0, len(tokenizer.kinds) + 3), max_size=60))
    assert "".join(deltas(tokenizer, token_ids)) == tokenizer.decode(token_ids)


@pytest.mark.parametrize("name", ["byte_level", "sentencepiece"])
@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=40))
def test_deltas_of_any_text_add_up_to_it(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    token_ids = tokenizer.encode(text, add_special_tokens=True)
    assert "".join(deltas(tokenizer, token_ids)) == tokenizer.decode(token_ids)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_long_runs_of_single_bytes_add_up(data: st.DataObject) -> None:
    """Byte-level vocabularies have every byte as a token; a weak model emits long invalid stretches of them."""
    tokenizer = TOKENIZERS["byte_level"]
    single_bytes = [i for i, kind in enumerate(tokenizer.kinds) if kind and len(tokenizer.token(i).raw) == 1]
    high = [i for i in single_bytes if tokenizer.token(i).raw[0] >= 0x80]
    chosen = data.draw(st.lists(st.sampled_from(high), min_size=1, max_size=6))
    token_ids = data.draw(st.lists(st.sampled_from(chosen), min_size=40, max_size=160))
    assert "".join(deltas(tokenizer, token_ids)) == tokenizer.decode(token_ids)


def test_a_character_of_several_tokens_comes_whole() -> None:
    tokenizer = Tokenizer(byte_level())
    token_ids = tokenizer.encode("🚂!", add_special_tokens=False)
    assert [piece for piece in deltas(tokenizer, token_ids) if piece] == ["🚂", "!"]


def test_spelled_characters_go_on_streaming_where_no_run_ends() -> None:
    tokenizer = Tokenizer(sentencepiece())
    text = "列车时刻表" * 20
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    assert all(tokenizer.kinds[token_id] == TokenKind.BYTE for token_id in token_ids[1:])
    pieces = [piece for piece in deltas(tokenizer, token_ids) if piece]
    assert "".join(pieces) == text
    assert len(pieces) > 5


def test_one_invalid_byte_spoils_its_run_as_in_the_full_decode() -> None:
    tokenizer = Tokenizer(sentencepiece())
    run = [i for i in tokenizer.encode("列", add_special_tokens=False) if tokenizer.kinds[i] == TokenKind.BYTE]
    token_ids = [*run, run[0], *tokenizer.encode("fox", add_special_tokens=False)]
    assert "".join(deltas(tokenizer, token_ids)) == tokenizer.decode(token_ids) == "\ufffd" * 4 + " fox"
