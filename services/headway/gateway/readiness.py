"""Whether every model of the plan can be answered, or some of them."""

from headway.gateway.served_models import ServedModels
from headway.rpc.peers import Peers


def waiting_for(served_models: ServedModels, peers: Peers) -> list[str]:
    """Returns what the stack still lacks, in words; empty when it is ready."""
    if served_models.plan is None:
        return ["a plan"]
    missing = [f"model '{name}': {fault}" for name, fault in served_models.faults.items()]
    if not peers.members("router"):
        missing.append("the router")
    loaded = _loaded(peers)
    asleep = served_models.plan.asleep  # they are loaded when they are asked for
    missing += [
        f"a worker that has '{name}' loaded" for name in served_models.worker_models if name not in {*loaded, *asleep}
    ]
    return missing


def can_answer(served_models: ServedModels, peers: Peers) -> bool:
    """Whether requests for some model come to an answer."""
    asleep = served_models.plan.asleep if served_models.plan is not None else frozenset()
    return bool(peers.members("router")) and not (_loaded(peers) | asleep).isdisjoint(served_models.worker_models)


def _loaded(peers: Peers) -> set[str]:
    return {model for worker in peers.members("worker") if worker.state == "ready" for model in worker.models}
