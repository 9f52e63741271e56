"""Detokenisation where each token stands for bytes, whatever its neighbours are: of byte-level vocabularies."""

import codecs

from headway.gateway.text.tokenizer import Tokenizer

_UTF8 = codecs.getincrementaldecoder("utf-8")


class ByteDetokenizer:
    """Detokenises one sequence by joining the bytes of its tokens; see `Detokenizer`.

    Args:
        tokenizer: a tokenizer whose text is the joined bytes of its tokens.

    Attributes:
        num_chars: characters given out so far.
    """

    __slots__ = ("_decoder", "_is_within", "_piece", "_whole", "num_chars")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._piece = tokenizer.piece
        self._whole = tokenizer.whole_piece
        self._decoder = _UTF8("replace")
        self._is_within = False  # a character of which bytes have come
        self.num_chars = 0

    def push(self, token_id: int) -> str:
        text = None if self._is_within else self._whole(token_id)
        if text is None:
            text = self._decoder.decode(self._piece(token_id))
            self._is_within = bool(self._decoder.getstate()[0])
        self.num_chars += len(text)
        return text

    def flush(self) -> str:
        text = self._decoder.decode(b"", final=True)
        self.num_chars += len(text)
        return text
