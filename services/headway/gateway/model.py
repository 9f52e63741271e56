"""A model as the gateway serves it."""

from dataclasses import dataclass, field

from headway.core.adapter import Adapter
from headway.core.model import ModelSpec
from headway.core.sampling_defaults import SamplingDefaults
from headway.core.slo import Slo
from headway.gateway.text.template import ChatTemplate
from headway.gateway.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that is served, with all that its requests need.

    Attributes:
        template: None where the checkpoint has no chat template.
        max_model_len: the most tokens that prompt and output may have together.
        num_replicas: the number of groups that serve it.
        block_size: tokens per block of the workers' prefix caches; 0 where they keep none.
        slo: the objectives of requests that name none.
        created_at_s: when it began to be served, in seconds since 1970.
        fingerprint: changes when the model behind the name does.
        sampling_defaults: sampling parameters of requests that set none.
        is_emulated: whether answers are made up, by emulated devices.
        adapter: whose name it has; None for a model that is served as it is.
        base: the model that the adapter changes; empty without one.
    """

    name: str
    spec: ModelSpec
    tokenizer: Tokenizer
    template: ChatTemplate | None
    max_model_len: int
    num_replicas: int
    block_size: int
    slo: Slo
    created_at_s: float
    fingerprint: str
    sampling_defaults: SamplingDefaults = field(default_factory=SamplingDefaults)
    is_emulated: bool = False
    adapter: Adapter | None = None
    base: str = ""

    @property
    def worker_model(self) -> str:
        """The name that router and workers know."""
        return self.base or self.name
