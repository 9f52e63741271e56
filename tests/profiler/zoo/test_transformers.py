"""Networks against those of transformers: the same outputs from the same weights, the same parameters in full size."""

import pytest
import torch
import transformers
from torch import nn

from headway.profiler.zoo.listing import num_parameters
from headway.profiler.zoo.network import make_network
from headway.profiler.zoo.registry import find

LLAMA_LAYER = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
    "attention_norm": "input_layernorm",
    "feed_forward_norm": "post_attention_layernorm",
}
LLAMA = {"tokens": "model.embed_tokens", "norm": "model.norm", "head": "lm_head", "layers": "model.layers"}
BERT_LAYER = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
BERT = {
    "embedding.tokens": "embeddings.word_embeddings",
    "embedding.positions": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "layers": "encoder.layer",
    "pooler": "pooler.dense",
}
MT5_ENCODER_LAYER = {
    "attention.query": "layer.0.SelfAttention.q",
    "attention.key": "layer.0.SelfAttention.k",
    "attention.value": "layer.0.SelfAttention.v",
    "attention.output": "layer.0.SelfAttention.o",
    "attention_norm": "layer.0.layer_norm",
    "feed_forward.gate": "layer.1.DenseReluDense.wi_0",
    "feed_forward.up": "layer.1.DenseReluDense.wi_1",
    "feed_forward.down": "layer.1.DenseReluDense.wo",
    "feed_forward_norm": "layer.1.layer_norm",
}
MT5_DECODER_LAYER = {ours: theirs.replace("layer.1.", "layer.2.") for ours, theirs in MT5_ENCODER_LAYER.items()} | {
    "cross_attention.query": "layer.1.EncDecAttention.q",
    "cross_attention.key": "layer.1.EncDecAttention.k",
    "cross_attention.value": "layer.1.EncDecAttention.v",
    "cross_attention.output": "layer.1.EncDecAttention.o",
    "cross_norm": "layer.1.layer_norm",
}
MT5 = {
    "tokens": "shared",
    "encoder": "encoder.block",
    "encoder_bias.buckets": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    "encoder_norm": "encoder.final_layer_norm",
    "decoder": "decoder.block",
    "decoder_bias.buckets": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    "decoder_norm": "decoder.final_layer_norm",
    "head": "lm_head",
}


def copied(ours: nn.Module, theirs: nn.Module, names: dict[str, str], **layers: dict[str, str]) -> nn.Module:
    """Ours with the weights of theirs; each parameter of ours must find its counterpart."""
    weights, state = theirs.state_dict(), {}
    for name in ours.state_dict():
        part, _, rest = name.partition(".")
        if part in layers:
            number, _, inner = rest.partition(".")
            module, _, kind = inner.rpartition(".")
            counterpart = f"{names[part]}.{number}.{layers[part][module]}.{kind}"
        else:
            module, _, kind = name.rpartition(".")
            counterpart = f"{names[module]}.{kind}"
        state[name] = weights[counterpart]
    ours.load_state_dict(state)
    return ours.eval()


def llama_config(name: str) -> transformers.LlamaConfig:
    config = find(name).config
    return transformers.LlamaConfig(
        vocab_size=config.vocabulary,
        hidden_size=config.hidden,
        intermediate_size=config.inner,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
    )


def mt5_config(name: str) -> transformers.MT5Config:
    config = find(name).config
    return transformers.MT5Config(
        vocab_size=config.vocabulary,
        d_model=config.hidden,
        d_kv=config.hidden // config.num_heads,
        d_ff=config.inner,
        num_layers=config.num_layers // 2,
        num_heads=config.num_heads,
        tie_word_embeddings=not config.has_output_matrix,
    )


def bert_config(name: str) -> transformers.BertConfig:
    config = find(name).config
    return transformers.BertConfig(
        vocab_size=config.vocabulary,
        hidden_size=config.hidden,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        intermediate_size=4 * config.hidden,
        max_position_embeddings=config.seq,
    )


@pytest.mark.parametrize("name", ["llama-7b-small", "llama-70b-small"])
def test_llama_computes_what_transformers_does(name: str) -> None:
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(llama_config(name)).eval()
    ours = copied(make_network(find(name), "cpu"), theirs, LLAMA, layers=LLAMA_LAYER)
    (tokens,) = find(name).example_inputs(batch=2, device="cpu")
    torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=1e-4, atol=1e-5)


def test_bert_computes_what_transformers_does() -> None:
    torch.manual_seed(0)
    theirs = transformers.BertModel(bert_config("bert-base-small")).eval()
    ours = copied(make_network(find("bert-base-small"), "cpu"), theirs, BERT, layers=BERT_LAYER)
    tokens, types = find("bert-base-small").example_inputs(batch=2, device="cpu")
    expected = theirs(input_ids=tokens, token_type_ids=types)
    hidden, pooled = ours(tokens, types)
    torch.testing.assert_close(hidden, expected.last_hidden_state, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(pooled, expected.pooler_output, rtol=1e-4, atol=1e-5)


def test_mt5_computes_what_transformers_does() -> None:
    torch.manual_seed(0)
    name = "tessel-mt5-1.8b-small"
    theirs = transformers.MT5ForConditionalGeneration(mt5_config(name)).eval()
    ours = copied(make_network(find(name), "cpu"), theirs, MT5, encoder=MT5_ENCODER_LAYER, decoder=MT5_DECODER_LAYER)
    source, target = find(name).example_inputs(batch=2, device="cpu")
    expected = theirs(input_ids=source, decoder_input_ids=target).logits
    torch.testing.assert_close(ours(source, target), expected, rtol=1e-4, atol=1e-4)


def qwen(kind: str, **fields: object) -> transformers.PretrainedConfig:
    return getattr(transformers, kind)(hidden_size=2048, vocab_size=151936, **fields)


FULL_SIZE = {
    "llama-7b": lambda: llama_config("llama-7b"),
    "llama-70b": lambda: llama_config("llama-70b"),
    "bert-large": lambda: bert_config("bert-large"),
    "tessel-mt5-9.5b": lambda: mt5_config("tessel-mt5-9.5b"),
    "qwen1.5-moe-a2.7b": lambda: qwen(
        "Qwen2MoeConfig",
        num_hidden_layers=24,
        num_attention_heads=16,
        num_key_value_heads=16,
        num_experts=60,
        moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632,
    ),
    "qwen3-30b-a3b": lambda: qwen(
        "Qwen3MoeConfig",
        num_hidden_layers=48,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        num_experts=128,
        moe_intermediate_size=768,
        tie_word_embeddings=False,
    ),
}


@pytest.mark.parametrize("name", FULL_SIZE)
def test_parameters_in_full_size_are_those_of_transformers(name: str) -> None:
    config = FULL_SIZE[name]()
    kind = transformers.AutoModel if name.startswith("bert") else transformers.AutoModelForCausalLM
    if name.startswith("tessel-mt5"):
        kind = transformers.AutoModelForSeq2SeqLM
    with torch.device("meta"):
        theirs = kind.from_config(config)
    assert num_parameters(find(name)) == sum(parameter.numel() for parameter in theirs.parameters())
