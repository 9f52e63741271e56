"""Detokenisation for any tokenizer.

A window over the last tokens is decoded before and after each new one; the difference is new text:

    ids      ... | prefix | read ... new |
    decoded        known    --- new text ---

The prefix is there because a token's text may depend on its neighbours (leading spaces, characters of several
tokens). A window whose text ends in U+FFFD may end inside a character: that last sign is held back. Where the
tokenizer spells characters as byte tokens, one invalid byte spoils the whole run of them, so a run is held back until
it ends, or is `_MAX_RUN` long: a text in a script that the vocabulary lacks goes on streaming, and only an invalid byte
behind so long a run would read otherwise than in one go.
"""

from headway.gateway.text.tokenizer import Tokenizer, TokenKind

_REPLACEMENT = "\ufffd"
_MAX_CHARACTER_BYTES = 4
_MAX_RUN = 32
_MAX_WINDOW = 32
# Enough to be in step with UTF-8 again: of any five bytes one starts a character, or all are stray.
_MIN_WINDOW = 12


class WindowDetokenizer:
    """Detokenises one sequence by decoding a window over its last tokens; see `Detokenizer`.

    Attributes:
        num_chars: characters given out so far.
    """

    __slots__ = ("_decode", "_kinds", "_num_known", "_num_prefix", "_run", "_window", "num_chars")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decode = tokenizer.decode
        self._kinds = tokenizer.kinds
        self._window: list[int] = []
        self._num_prefix = 0  # tokens of the window that only give context
        self._num_known = 0  # characters of the window's text that were given out
        self._run = 0  # byte tokens at the end of the window
        self.num_chars = 0

    def push(self, token_id: int) -> str:
        kind = self._kinds[token_id] if 0 <= token_id < len(self._kinds) else TokenKind.SILENT
        if kind == TokenKind.SILENT:
            return ""
        self._window.append(token_id)
        if kind == TokenKind.BYTE:
            self._run += 1
            return self._take_run() if self._run >= _MAX_RUN else ""
        self._run = 0
        text = self._decode(self._window)
        if not text.endswith(_REPLACEMENT):
            return self._take(text)
        return self._take_part(text)

    def flush(self) -> str:
        return self._take(self._decode(self._window))

    def _take(self, text: str) -> str:
        """Gives out all of the window's text. The tokens since the last time become the next window's prefix."""
        new = text[self._num_known :]
        if new:
            del self._window[: self._num_prefix]
            self._num_prefix = len(self._window)
            self._num_known = len(self._decode(self._window))
            self.num_chars += len(new)
        return new

    def _take_part(self, text: str) -> str:
        """Gives out all of the window's text but the last sign, which the next token may change."""
        new = text[self._num_known : -1]
        self._num_known += len(new)
        self.num_chars += len(new)
        if len(self._window) > _MAX_WINDOW:
            self._window = self._window[-_MIN_WINDOW:]
            self._num_prefix = 0
            self._num_known = len(self._decode(self._window)) - 1
        return new

    def _take_run(self) -> str:
        """A run too long to wait for: at the end of a character, or at once where no character can end any more."""
        text = self._decode(self._window)
        if text.endswith(_REPLACEMENT) and self._run < _MAX_RUN + _MAX_CHARACTER_BYTES:
            return ""
        self._run = 0
        return self._take(text)
