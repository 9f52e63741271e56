"""The way from a load order to a loaded model: slow, and done in a thread but for the last step."""

from typing import Protocol

from headway.core.cluster import Hardware
from headway.core.engine_kind import EngineKind
from headway.core.line import QueuePolicy
from headway.core.load_order import LoadOrder
from headway.worker.load_call import LoadCall
from headway.worker.loaded import Start


class Loader(Protocol):
    """Loads models on one worker, and knows what they share."""

    def prepare(self, order: LoadOrder, *, call: LoadCall) -> Start:
        """Loads what computes the model, or on an emulated device what takes the time; in a group, the worker's rank.

        Raises:
            HeadwayError: the checkpoint is missing or malformed, or of a kind that Headway does not run so; or another
                rank could not load.
        """


def loader_of(
    hardware: Hardware,
    *,
    address: str,
    has_graphs: bool,
    overlaps_steps: bool,
    queue_policy: QueuePolicy,
    engine_events: str = "",
) -> Loader:
    """Returns the loader for this hardware. Loaders are imported only where they are used: an emulated device has no
    use for torch.

    Args:
        address: where other processes reach this one.
        has_graphs: whether decode steps are captured, on a GPU.
        overlaps_steps: whether a step is launched while the one before runs, on a GPU.
        queue_policy: whose request is next, for engines that have a queue of their own.
        engine_events: where a server publishes the events of its cache; empty where it does not.
    """
    if hardware.is_emulated:
        from headway.worker.emulated_loading import EmulatedLoader

        return EmulatedLoader()
    if hardware.engine is EngineKind.VLLM:
        from headway.worker.vllm.loading import VllmLoader

        return VllmLoader(hardware, queue_policy=queue_policy)
    if hardware.server is not None:
        from headway.worker.vllm_server.loading import VllmServerLoader

        return VllmServerLoader(hardware.server, events=engine_events)
    from headway.worker.computed_loading import ComputedLoader

    return ComputedLoader(hardware, address=address, has_graphs=has_graphs, overlaps_steps=overlaps_steps)
