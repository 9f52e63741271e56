"""A checkpoint's tokenizer."""

import re
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import tokenizers

from headway.core.errors import FailedPreconditionError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_ANCHOR = "a"


class TokenKind(IntEnum):
    """How a token takes part in decoded text."""

    SILENT = 0  # special, or unknown to the tokenizer: leaves no trace
    TEXT = 1
    BYTE = 2  # one byte of a character that the vocabulary lacks


@dataclass(frozen=True, slots=True)
class TokenText:
    """One token by itself. A part of a character reads as U+FFFD; `raw` holds the bytes that it stands for."""

    text: str
    raw: bytes


class Tokenizer:
    """Text to token ids and back. Calls are safe from any thread.

    Attributes:
        kinds: the `TokenKind` of each id.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._has_byte_tokens = _decode_tokens(tokenizer, ["<0x41>"]) == "A"
        self._is_byte_level = _decode_tokens(tokenizer, ["\u0120"]) == " "
        self._texts: dict[int, TokenText] = {}
        self.kinds = self._classify()
        self._anchor = self.encode(_ANCHOR, add_special_tokens=False)[-1:]

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Reads a `tokenizer.json`."""
        try:
            return cls(tokenizers.Tokenizer.from_file(str(path)))
        except Exception as error:  # the library raises nothing more precise
            raise FailedPreconditionError(f"{path} is no tokenizer: {error}.", hint="Download it again.") from error

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids; `add_special_tokens` adds those that the tokenizer puts around a text, such as BOS.

        The batch call is the one that lets other threads run meanwhile.
        """
        return self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = True) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def token(self, token_id: int) -> TokenText:
        """One token as it reads within a text, special ones by name."""
        found = self._texts.get(token_id)
        if found is None:
            found = self._texts[token_id] = self._read(token_id)
        return found

    def _read(self, token_id: int) -> TokenText:
        # Behind an anchor, since decoders strip the leading space of a text's first token.
        before = self.decode(self._anchor, skip_special_tokens=False)
        text = self.decode([*self._anchor, token_id], skip_special_tokens=False)[len(before) :]
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


def _decode_tokens(tokenizer: tokenizers.Tokenizer, tokens: list[str]) -> str:
    return tokenizer.decoder.decode(tokens) if tokenizer.decoder is not None else " ".join(tokens)


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: each byte has a printable character; those without one of their own follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in set(printable)]
    alphabet = {chr(value): value for value in printable}
    return alphabet | {chr(0x100 + i): value for i, value in enumerate(others)}


_BYTE_BY_CHAR = _byte_level_alphabet()
