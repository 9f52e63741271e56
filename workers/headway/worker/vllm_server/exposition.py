"""What a vLLM server says of itself in /metrics. Pure."""

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFacts:
    """The KV cache of a server. vLLM keeps one of its blocks for itself, which does not count."""

    num_blocks: int
    block_size: int
    has_prefix_cache: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLoad:
    """How busy a server is, with whoever's requests.

    Attributes:
        kv_usage: share of the blocks that tables name.
        num_preemptions, num_query_tokens, num_generated_tokens: since it was started.
    """

    kv_usage: float = 0.0
    num_preemptions: int = 0
    num_query_tokens: int = 0
    num_generated_tokens: int = 0


def cache_facts(text: str) -> CacheFacts | None:
    """None where it says nothing of its blocks."""
    labels = next((each.labels for each in _samples(text) if each.name == "vllm:cache_config_info"), None)
    if labels is None or not labels.get("num_gpu_blocks", "").isdecimal():
        return None
    return CacheFacts(
        num_blocks=int(labels["num_gpu_blocks"]) - 1,
        block_size=int(labels["block_size"]),
        has_prefix_cache=labels.get("enable_prefix_caching") == "True",
    )


def read_load(text: str) -> ServerLoad:
    """Of all its engines together."""
    samples = _samples(text)

    def total(name: str) -> float:
        return sum(each.value for each in samples if each.name == name)

    num_engines = sum(each.name == "vllm:kv_cache_usage_perc" for each in samples)
    return ServerLoad(
        kv_usage=total("vllm:kv_cache_usage_perc") / max(1, num_engines),
        num_preemptions=int(total("vllm:num_preemptions_total")),
        num_query_tokens=int(total("vllm:prefix_cache_queries_total")),
        num_generated_tokens=int(total("vllm:generation_tokens_total")),
    )


def _samples(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
