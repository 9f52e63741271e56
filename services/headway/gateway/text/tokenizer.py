"""The tokenizer of a checkpoint."""

import json
import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path

import tokenizers
from tokenizers import decoders

from headway.core.errors import FailedPreconditionError
from headway.core.infer import TextInput
from headway.gateway.tools.tags import SHOWN

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_ANCHOR = "a"


class TokenKind(IntEnum):
    """How a token takes part in decoded text."""

    SILENT = 0  # special, or unknown to the tokenizer: leaves no trace
    TEXT = 1
    BYTE = 2  # one byte of a character that the vocabulary lacks


@dataclass(frozen=True, slots=True)
class TokenText:
    """The text of one token by itself. A part of a character reads as U+FFFD; `raw` holds the bytes behind it."""

    text: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class TypedTokens:
    """Tokens of a text or a pair, and which of the two each belongs to."""

    token_ids: tuple[int, ...]
    type_ids: tuple[int, ...]


class Tokenizer:
    """Turns text into token ids and back. Calls are safe from any thread.

    Attributes:
        kinds: the `TokenKind` of each id.
        joins_bytes: whether a text is the bytes of its tokens, one after the other; see `piece`.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._has_byte_tokens = _decode_tokens(tokenizer, ["<0x41>"]) == "A"
        self._is_byte_level = _decode_tokens(tokenizer, ["\u0120"]) == " "
        self._skips_special_tokens = True
        self._texts: dict[int, TokenText] = {}
        self._pieces: dict[int, bytes] = {}
        self._whole_pieces: dict[int, str | None] = {}
        self.joins_bytes = isinstance(tokenizer.decoder, decoders.ByteLevel)
        self.kinds = self._classify()
        self._anchor = self.encode(_ANCHOR, add_special_tokens=False)[-1:]

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Reads a tokenizer from a `tokenizer.json` file."""
        try:
            return cls(_show_tags(tokenizers.Tokenizer.from_file(str(path))))
        except Exception as error:  # the library raises nothing more precise
            raise FailedPreconditionError(f"{path} is no tokenizer: {error}.", hint="Download it again.") from error

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids; `add_special_tokens` adds those that the tokenizer puts around a text, such as BOS.

        The batch call is the one that lets other threads run meanwhile.
        """
        return self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids

    def encode_inputs(self, texts: Sequence[TextInput], *, max_tokens: int | None = None) -> list[TypedTokens]:
        """Texts and pairs of texts, with special tokens.

        Args:
            max_tokens: longer ones lose tokens at the end of their text, of the second one in a pair; None keeps all.
        """
        batch = [text.first if text.second is None else (text.first, text.second) for text in texts]
        encodings = self._tokenizer.encode_batch(batch)
        return [
            self._cut(text, max_tokens)
            if max_tokens is not None and len(encoding.ids) > max_tokens
            else TypedTokens(tuple(encoding.ids), tuple(encoding.type_ids))
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def _cut(self, text: TextInput, max_tokens: int) -> TypedTokens:
        """Cut before the special tokens are added, so that none is lost."""
        is_pair = text.second is not None
        parts = [text.first] if text.second is None else [text.first, text.second]
        first, *rest = self._tokenizer.encode_batch(parts, add_special_tokens=False)
        num_fixed = self._tokenizer.num_special_tokens_to_add(is_pair) + (len(first.ids) if is_pair else 0)
        (rest[0] if is_pair else first).truncate(max(max_tokens - num_fixed, 0))
        encoding = self._tokenizer.post_process(first, rest[0] if is_pair else None)
        return TypedTokens(tuple(encoding.ids), tuple(encoding.type_ids))

    def decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=self._skips_special_tokens)

    @cached_property
    def with_special_tokens(self) -> "Tokenizer":
        """The same tokenizer, whose special tokens leave their names in the text."""
        kinds = bytearray(self.kinds)
        for token_id in self._tokenizer.get_added_tokens_decoder():
            kinds[token_id] = TokenKind.TEXT
        shown = copy(self)
        vars(shown).update(kinds=bytes(kinds), _pieces={}, _whole_pieces={}, _skips_special_tokens=False)
        return shown

    def token(self, token_id: int) -> TokenText:
        """One token as it reads within a text, special ones by name."""
        found = self._texts.get(token_id)
        if found is None:
            found = self._texts[token_id] = self._read(token_id)
        return found

    def name(self, token_id: int) -> str:
        """A token as the vocabulary has it; empty for an id without one."""
        return self._tokenizer.id_to_token(token_id) or ""

    def piece(self, token_id: int) -> bytes:
        """Returns the bytes that a token adds to the text, for a tokenizer that joins bytes; empty for a token that
        leaves no trace.
        """
        found = self._pieces.get(token_id)
        if found is None:
            found = self._pieces[token_id] = self._bytes_of(token_id)
        return found

    def whole_piece(self, token_id: int) -> str | None:
        """The same as text; None where it is not whole characters."""
        try:
            return self._whole_pieces[token_id]
        except KeyError:
            piece = self.piece(token_id).decode(errors="replace")
            found = self._whole_pieces[token_id] = None if "\ufffd" in piece else piece
            return found

    def _bytes_of(self, token_id: int) -> bytes:
        if not 0 <= token_id < len(self.kinds) or self.kinds[token_id] == TokenKind.SILENT:
            return b""
        name = self._tokenizer.id_to_token(token_id) or ""
        if all(char in _BYTE_BY_CHAR for char in name):
            return bytes(_BYTE_BY_CHAR[char] for char in name)
        return name.encode()  # an added token, which is not in the alphabet

    def _read(self, token_id: int) -> TokenText:
        # Behind an anchor, since decoders strip the leading space of a text's first token.
        before = self._tokenizer.decode(self._anchor, skip_special_tokens=False)
        text = self._tokenizer.decode([*self._anchor, token_id], skip_special_tokens=False)[len(before) :]
        name = self._tokenizer.id_to_token(token_id) or ""
        if self._has_byte_tokens and (match := _BYTE_TOKEN.fullmatch(name)):
            return TokenText(text, bytes.fromhex(match[1]))
        if self._is_byte_level and "\ufffd" in text and all(char in _BYTE_BY_CHAR for char in name):
            return TokenText(text, bytes(_BYTE_BY_CHAR[char] for char in name))
        return TokenText(text, text.encode())

    def _classify(self) -> bytes:
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        kinds = bytearray(max(vocabulary.values(), default=-1) + 1)
        for token_id in vocabulary.values():
            kinds[token_id] = TokenKind.TEXT
        if self._has_byte_tokens:
            for value in range(256):
                if (token_id := vocabulary.get(f"<0x{value:02X}>", -1)) >= 0:
                    kinds[token_id] = TokenKind.BYTE
        for token_id, added in self._tokenizer.get_added_tokens_decoder().items():
            if added.special:
                kinds[token_id] = TokenKind.SILENT
        return bytes(kinds)


def _show_tags(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Some checkpoints mark the tags around calls and reasoning as special; then they would leave no trace in the
    text.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    if not any(token.special and token.content in SHOWN for token in added):
        return tokenizer
    document = json.loads(tokenizer.to_str())
    for token in document["added_tokens"]:
        token["special"] = token["special"] and token["content"] not in SHOWN
    return tokenizers.Tokenizer.from_str(json.dumps(document))


def _decode_tokens(tokenizer: tokenizers.Tokenizer, tokens: list[str]) -> str:
    return tokenizer.decoder.decode(tokens) if tokenizer.decoder is not None else " ".join(tokens)


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: each byte has a printable character; those without one of their own follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in set(printable)]
    alphabet = {chr(value): value for value in printable}
    return alphabet | {chr(0x100 + i): value for i, value in enumerate(others)}


_BYTE_BY_CHAR = _byte_level_alphabet()
