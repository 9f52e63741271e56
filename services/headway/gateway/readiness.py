"""Whether every model of the plan can be answered."""

from headway.gateway.catalogue import Catalogue
from headway.rpc.peers import Peers


def waiting_for(catalogue: Catalogue, peers: Peers) -> list[str]:
    """What is missing, for people; empty when everything is there."""
    if catalogue.plan is None:
        return ["a plan"]
    missing = [f"model '{name}': {fault}" for name, fault in catalogue.faults.items()]
    if not peers.members("router"):
        missing.append("the router")
    ready = {model for worker in peers.members("worker") if worker.state == "ready" for model in worker.models}
    missing += [f"a worker that has '{name}' loaded" for name in catalogue.models if name not in ready]
    return missing
