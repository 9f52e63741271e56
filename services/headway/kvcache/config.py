"""The settings of the KV-cache service."""

from pydantic import Field

from headway.rpc.config import ProcessConfig


class KvCacheConfig(ProcessConfig):
    """The flags of `headway-kvcache`."""

    reconcile_every_s: float = Field(default=60.0, gt=0)
    """How often each worker is asked for a snapshot to compare the index with."""
    load_interval_ms: int = Field(default=500, ge=1)
    """How often workers report their free blocks."""
    sharding_every_s: float = Field(default=2.0, gt=0)
    """How often it is decided anew how groups share their caches."""
