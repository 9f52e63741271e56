"""Makes small encoder checkpoints with random weights and a WordPiece tokenizer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertConfig,
    DistilBertConfig,
    PreTrainedConfig,
    RobertaConfig,
    XLMRobertaConfig,
)

from headway.core.encoder import Pooling
from tests.checkpoints import TEXT, edit_json, scatter

_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_VOCAB_SIZE = 400
_WIDE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 112}
_COMMON = {**_WIDE, "vocab_size": _VOCAB_SIZE, "initializer_range": 0.15}
_CONFIGS: dict[str, tuple[type[PreTrainedConfig], dict[str, Any]]] = {
    "bert": (BertConfig, {**_COMMON, "max_position_embeddings": 128, "pad_token_id": 0}),
    "roberta": (RobertaConfig, {**_COMMON, "max_position_embeddings": 130, "pad_token_id": 1, "type_vocab_size": 1}),
    "xlm-roberta": (XLMRobertaConfig, {**_COMMON, "max_position_embeddings": 130, "pad_token_id": 1}),
    "distilbert": (
        DistilBertConfig,
        {
            "vocab_size": _VOCAB_SIZE,
            "dim": 64,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 112,
            "max_position_embeddings": 128,
            "initializer_range": 0.15,
        },
    ),
}


def make_encoder(
    directory: Path,
    family: str,
    *,
    seed: int = 0,
    num_labels: int = 0,
    is_masked_lm: bool = False,
    pooling: Pooling | None = None,
    normalizes: bool = False,
    score_function: str | None = None,
    edit: Callable[[Any], object] = lambda model: None,
) -> Path:
    """Writes an encoder of `family` to `directory` and returns it.

    Args:
        num_labels: of a classifier; 0 for the bare model.
        pooling: writes the directory as sentence-transformers does; None leaves its files out.
        edit: changes the model before it is written.
    """
    config_class, fields = _CONFIGS[family]
    torch.manual_seed(seed)
    if num_labels:
        model = AutoModelForSequenceClassification.from_config(config_class(**fields, num_labels=num_labels))
    else:
        model = (AutoModelForMaskedLM if is_masked_lm else AutoModel).from_config(config_class(**fields))
    scatter(model)
    with torch.no_grad():
        edit(model)
    model.save_pretrained(directory)
    make_tokenizer(family).save(str(directory / "tokenizer.json"))
    if score_function is not None:
        edit_json(directory / "config.json", sentence_transformers={"activation_fn": score_function})
    if pooling is not None:
        _write_modules(directory, pooling, normalizes=normalizes)
    return directory


def make_tokenizer(family: str = "bert") -> Tokenizer:
    """WordPiece, with the special tokens that the family puts around a text and between two."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=_VOCAB_SIZE, special_tokens=list(_SPECIAL_TOKENS), show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    type_of_second = 1 if family == "bert" else 0
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A [SEP] $B:{type_of_second} [SEP]:{type_of_second}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def _write_modules(directory: Path, pooling: Pooling, *, normalizes: bool) -> None:
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalizes else [])]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{kind}" if index else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    flags = {"mean_tokens": Pooling.MEAN, "cls_token": Pooling.CLS, "max_tokens": Pooling.MAX}
    config = {f"pooling_mode_{name}": kind is pooling for name, kind in flags.items()}
    (directory / "1_Pooling").mkdir(exist_ok=True)
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 64, **config}))
