"""Lists the metrics addresses of every process of the stack for Prometheus."""

from typing import Any

from headway.rpc.peers import Peers


def scrape_targets(peers: Peers) -> list[dict[str, Any]]:
    """The document of Prometheus's HTTP service discovery: one entry for each live process.

    Its labels are no metric's own: Prometheus calls those otherwise where a target has a label of their name.
    """
    return [
        {
            "targets": [member.metrics_endpoint],
            "labels": {"component": member.kind, "process": member.member_id, "group_id": member.group_id},
        }
        for member in sorted(peers.everyone, key=lambda member: member.member_id)
        if member.metrics_endpoint
    ]
