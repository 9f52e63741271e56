"""Reads the `config.json` of BERT and its relatives."""

from dataclasses import replace

from headway.core.encoder import EncoderSpec, Pooling, ScoreFunction
from headway.core.errors import InvalidArgumentError
from headway.core.hf_fields import Config, activation, positive, require, unsupported
from headway.core.model import ModelFamily, ModelSpec

_CLASSIFIER = "ForSequenceClassification"


def read_bert(config: Config, architecture: str, dtype: str) -> ModelSpec:
    """BERT: positions from 0, two token types."""
    num_positions = positive(config, "max_position_embeddings", default=512)
    encoder = EncoderSpec(num_positions=num_positions, num_token_types=positive(config, "type_vocab_size", default=2))
    return _read(config, architecture, dtype, family=ModelFamily.BERT, encoder=encoder)


def read_roberta(config: Config, architecture: str, dtype: str) -> ModelSpec:
    """RoBERTa and XLM-R: positions start behind the padding token's."""
    num_positions = positive(config, "max_position_embeddings", default=514)
    encoder = EncoderSpec(
        num_positions=num_positions,
        position_offset=int(config.get("pad_token_id", 1)) + 1,
        num_token_types=positive(config, "type_vocab_size", default=1),
    )
    return _read(config, architecture, dtype, family=ModelFamily.ROBERTA, encoder=encoder)


def read_distilbert(config: Config, architecture: str, dtype: str) -> ModelSpec:
    """DistilBERT: no token types, and names of its own."""
    encoder = EncoderSpec(num_positions=positive(config, "max_position_embeddings", default=512))
    renamed = {
        "hidden_size": config.get("dim", 768),
        "num_hidden_layers": config.get("n_layers", 6),
        "num_attention_heads": config.get("n_heads", 12),
        "intermediate_size": config.get("hidden_dim", 3072),
        "hidden_act": config.get("activation"),
        "layer_norm_eps": 1e-12,
    }
    return _read({**config, **renamed}, architecture, dtype, family=ModelFamily.DISTILBERT, encoder=encoder)


def _read(config: Config, architecture: str, dtype: str, *, family: ModelFamily, encoder: EncoderSpec) -> ModelSpec:
    require(config, "is_decoder", value=False)
    require(config, "add_cross_attention", value=False)
    if (kind := config.get("position_embedding_type", "absolute")) != "absolute":
        raise unsupported("position_embedding_type", kind, ("absolute",))
    hidden_size, num_heads = positive(config, "hidden_size"), positive(config, "num_attention_heads")
    if hidden_size % num_heads:
        raise InvalidArgumentError(
            f"num_attention_heads {num_heads} does not divide hidden_size {hidden_size}.", field="num_attention_heads"
        )
    return ModelSpec(
        family=family,
        architecture=architecture,
        vocab_size=positive(config, "vocab_size"),
        hidden_size=hidden_size,
        num_layers=positive(config, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=hidden_size // num_heads,
        intermediate_size=positive(config, "intermediate_size"),
        max_position=encoder.num_positions - encoder.position_offset,
        dtype=dtype,
        activation=activation(config, "hidden_act", "gelu"),
        norm_eps=float(config.get("layer_norm_eps", 1e-12)),
        attention_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
        pre_norm=False,
        final_norm=False,
        encoder=_with_labels(encoder, config) if architecture.endswith(_CLASSIFIER) else encoder,
    )


def _with_labels(encoder: EncoderSpec, config: Config) -> EncoderSpec:
    names = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    labels = tuple(str(name) for _, name in sorted(names.items(), key=lambda item: int(item[0])))
    score_function = _score_function(config, num_labels=len(labels))
    return replace(encoder, pooling=Pooling.CLS, labels=labels, score_function=score_function)


def _score_function(config: Config, *, num_labels: int) -> ScoreFunction:
    """Returns the score function that the checkpoint states in one of three ways; else the sigmoid for one label, the
    softmax for several.
    """
    stated = (config.get("sentence_transformers") or {}).get("activation_fn")
    stated = stated or config.get("sbert_ce_default_activation_function")
    if stated:
        name = str(stated).rsplit(".", 1)[-1].lower()
        if name not in set(ScoreFunction):
            raise unsupported("activation_fn", stated, ("Sigmoid", "Identity", "Softmax"))
        return ScoreFunction(name)
    match config.get("problem_type"):
        case "multi_label_classification":
            return ScoreFunction.SIGMOID
        case "regression":
            return ScoreFunction.IDENTITY
    return ScoreFunction.SIGMOID if num_labels == 1 else ScoreFunction.SOFTMAX
