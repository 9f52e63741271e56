"""Configurations of encoders, as their checkpoints have them."""

from typing import Any

import pytest

from headway.core.encoder import EncoderSpec, Pooling, ScoreFunction
from headway.core.errors import InvalidArgumentError
from headway.core.hf_config import spec_from_config
from headway.core.model import ModelFamily, ModelSpec, Task
from headway.core.sentence_transformers import Module, apply_modules

BERT: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}
XLM_R = BERT | {
    "architectures": ["XLMRobertaForSequenceClassification"],
    "model_type": "xlm-roberta",
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "id2label": {"0": "LABEL_0"},
}
DISTILBERT = {
    "architectures": ["DistilBertForSequenceClassification"],
    "model_type": "distilbert",
    "vocab_size": 30522,
    "dim": 768,
    "n_layers": 6,
    "n_heads": 12,
    "hidden_dim": 3072,
    "activation": "gelu",
    "max_position_embeddings": 512,
    "id2label": {"0": "NEGATIVE", "1": "POSITIVE"},
}


def encoder_of(spec: ModelSpec) -> EncoderSpec:
    assert spec.encoder is not None
    return spec.encoder


def test_bert_embeds_with_mean_pooling() -> None:
    spec = spec_from_config(BERT)
    assert (spec.family, spec.task, spec.max_position) == (ModelFamily.BERT, Task.EMBED, 512)
    assert encoder_of(spec) == EncoderSpec(num_positions=512, num_token_types=2)
    assert spec.kv_bytes_per_token == 0
    assert spec.num_parameters == pytest.approx(22.7e6, rel=0.01)  # MiniLM-L6 without its pooler


def test_the_positions_of_roberta_start_behind_padding() -> None:
    spec = spec_from_config(XLM_R)
    encoder = encoder_of(spec)
    assert (spec.family, spec.task, spec.max_position) == (ModelFamily.ROBERTA, Task.CLASSIFY, 512)
    assert (encoder.num_positions, encoder.position_offset, encoder.num_token_types) == (514, 2, 1)
    assert encoder.can_rerank
    assert (encoder.pooling, encoder.score_function) == (Pooling.CLS, ScoreFunction.SIGMOID)


def test_distilbert_has_names_of_its_own() -> None:
    spec = spec_from_config(DISTILBERT)
    encoder = encoder_of(spec)
    assert (spec.family, spec.hidden_size, spec.num_layers, spec.intermediate_size) == (
        ModelFamily.DISTILBERT,
        768,
        6,
        3072,
    )
    assert encoder.labels == ("NEGATIVE", "POSITIVE")
    assert (encoder.score_function, encoder.can_rerank) == (ScoreFunction.SOFTMAX, False)


def test_labels_are_in_the_order_of_their_numbers() -> None:
    names = {str(i): f"label {i}" for i in (10, 2, 0, 1, 3, 4, 5, 6, 7, 8, 9)}
    assert encoder_of(spec_from_config(XLM_R | {"id2label": names})).labels == tuple(f"label {i}" for i in range(11))


@pytest.mark.parametrize(
    ("changes", "function"),
    [
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, ScoreFunction.IDENTITY),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, ScoreFunction.SIGMOID),
        ({"problem_type": "multi_label_classification", "id2label": {"0": "a", "1": "b"}}, ScoreFunction.SIGMOID),
        ({"problem_type": "regression"}, ScoreFunction.IDENTITY),
    ],
)
def test_the_checkpoint_may_state_its_score_function(changes: dict[str, Any], function: ScoreFunction) -> None:
    assert encoder_of(spec_from_config(XLM_R | changes)).score_function is function


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"is_decoder": True}, "is_decoder"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"num_attention_heads": 7}, "num_attention_heads"),
        ({"hidden_act": "mish"}, "hidden_act"),
        ({"architectures": ["BertForTokenClassification"]}, "architectures"),
    ],
)
def test_what_is_not_supported_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        spec_from_config(BERT | changes)
    assert caught.value.field == field


def test_modules_decide_pooling_and_normalisation() -> None:
    flags = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "word_embedding_dimension": 384}
    modules = [Module("Transformer"), Module("Pooling", flags), Module("Normalize")]
    encoder = apply_modules(EncoderSpec(num_positions=512), modules)
    assert (encoder.pooling, encoder.normalizes) == (Pooling.CLS, True)


@pytest.mark.parametrize(
    "module",
    [
        Module("Dense"),
        Module("Pooling", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}),
        Module("Pooling", {"pooling_mode_lasttoken": True}),
        Module("Pooling"),
    ],
)
def test_modules_that_would_change_the_result_unseen_are_refused(module: Module) -> None:
    with pytest.raises(InvalidArgumentError, match="not supported"):
        apply_modules(EncoderSpec(num_positions=512), [module])
