"""Small tokenizers of each kind that checkpoints carry."""

from collections.abc import Callable

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

_TEXT = (
    "The quick brown fox jumps over the lazy dog. Trains run on time; the line is in steady state.\n"
    "Früh übt sich. Ça va, garçon? 列车时刻表 поезд"
)
BOS, EOS = "<s>", "</s>"


def byte_level() -> Tokenizer:
    """As GPT-2, Llama 3 and Qwen: characters are cut into bytes, bytes are merged."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_TEXT], trainer)
    return tokenizer


def sentencepiece() -> Tokenizer:
    """As Llama 2 and Mistral: spaces are pieces, unknown characters become byte tokens, BOS goes in front."""
    words = sorted({piece for word in _TEXT.split() for piece in (word, f"▁{word}", *word)} - set("列车时刻表"))
    tokens = ["<unk>", EOS, BOS, *(f"<0x{value:02X}>" for value in range(256)), "▁", "\ufffd", *words]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in ("<unk>", BOS, EOS)])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, vocabulary[BOS])]
    )
    return tokenizer


def metaspace() -> Tokenizer:
    """As T5-like tokenizers: the first piece loses its space by position."""
    tokenizer = sentencepiece()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    return tokenizer


def word_piece() -> Tokenizer:
    """As BERT: continuations are marked, words are joined by spaces."""
    words = sorted({piece for word in _TEXT.split() for piece in (word, f"##{word}")})
    vocabulary = {token: i for i, token in enumerate(["[UNK]", *words, ".", ",", "'s"])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return tokenizer


VOCABULARIES: dict[str, Callable[[], Tokenizer]] = {
    "byte_level": byte_level,
    "sentencepiece": sentencepiece,
    "metaspace": metaspace,
    "word_piece": word_piece,
}
