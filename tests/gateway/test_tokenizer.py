"""Single tokens, as logprobs show them."""

from pathlib import Path

import pytest
from tokenizers import AddedToken

from headway.core.errors import FailedPreconditionError
from headway.gateway.text.tokenizer import Tokenizer, TokenKind
from tests.gateway.vocabularies import BOS, EOS, byte_level, sentencepiece


def test_special_tokens_are_added_only_when_asked_for() -> None:
    tokenizer = Tokenizer(sentencepiece())
    with_bos = tokenizer.encode("fox", add_special_tokens=True)
    assert tokenizer.token(with_bos[0]).text == BOS
    assert tokenizer.encode("fox", add_special_tokens=False) == with_bos[1:]


def test_a_token_keeps_its_leading_space() -> None:
    tokenizer = Tokenizer(sentencepiece())
    texts = [tokenizer.token(i).text for i in tokenizer.encode("the fox", add_special_tokens=False)]
    assert "".join(texts) == " the fox"


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
def test_the_bytes_of_tokens_make_up_the_text(make: object) -> None:
    assert callable(make)
    tokenizer = Tokenizer(make())
    token_ids = tokenizer.encode("a 🚂 fährt", add_special_tokens=False)
    raw = b"".join(tokenizer.token(i).raw for i in token_ids)
    assert raw.decode().strip() == "a 🚂 fährt"


@pytest.mark.parametrize("is_special", [True, False])
def test_tags_of_tool_calls_are_text(tmp_path: Path, is_special: bool) -> None:
    vocabulary = byte_level()
    tags = [AddedToken(tag, special=is_special) for tag in ("<tool_call>", "</tool_call>")]
    (vocabulary.add_special_tokens if is_special else vocabulary.add_tokens)(tags)
    vocabulary.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    token_ids = tokenizer.encode("a<tool_call>b</tool_call>", add_special_tokens=False)
    assert len(token_ids) == 4
    assert tokenizer.decode(token_ids) == "a<tool_call>b</tool_call>"
    assert {tokenizer.kinds[token_id] for token_id in token_ids} == {TokenKind.TEXT}


def test_special_tokens_are_silent_and_have_a_name() -> None:
    tokenizer = Tokenizer(byte_level())
    eos = tokenizer.encode(EOS, add_special_tokens=False)[0]
    assert tokenizer.kinds[eos] == TokenKind.SILENT
    assert tokenizer.token(eos).text == EOS
    assert tokenizer.decode([eos]) == ""


def test_padding_and_truncation_of_the_file_are_not_applied() -> None:
    base = byte_level()
    base.enable_truncation(2)
    base.enable_padding(length=64)
    assert 2 < len(Tokenizer(base).encode("the quick brown fox", add_special_tokens=True)) < 64


def test_a_broken_file_is_named(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "tokenizer.json"
    path.write_text("{")
    with pytest.raises(FailedPreconditionError, match=r"tokenizer\.json"):
        Tokenizer.load(path)
