"""`python -m tests.cluster.pretended_workers`: a worker for each pod of cells that a control plane says runs.

All of them are in this process. They load whatever they are told, and when their pod is gone so are they, without a
word.
"""

import argparse
import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import headway.rpc  # noqa: F401 - gRPC's settings, before gRPC

import grpc  # isort: skip
import httpx

from headway.store.membership import RENEW_EVERY_S, Member, Membership
from headway.store.redis import Database
from headway.v1 import worker_pb2_grpc
from headway.worker.hardware import emulated_hardware
from tests.controller.scripted import ScriptedWorker

_MEMORY_BYTES = 16 * 1024**3
_CELLS = {"labelSelector": "headway/role=worker"}


class PretendedWorker:
    """A worker of a pod: `start` it, and `end` it as a node that is lost does."""

    def __init__(self, worker_id: str, *, device: str, database: Database, membership: Membership) -> None:
        self._membership = membership
        self._server = grpc.aio.server()
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._member = Member(
            kind="worker",
            member_id=worker_id,
            endpoint=f"127.0.0.1:{port}",
            metrics_endpoint="",
            pid=os.getpid(),
            started_at_s=time.time(),
            state="starting",
        )
        hardware = emulated_hardware(device, memory_bytes=_MEMORY_BYTES)
        worker = ScriptedWorker(worker_id, database, on_state=self._show, hardware=hardware)
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, self._server)
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._server.start()
        await self._membership.enter(self._member)
        self._keeping = asyncio.create_task(self._keep_lease())

    async def end(self) -> None:
        assert self._keeping is not None
        self._keeping.cancel()
        await self._server.stop(grace=None)

    async def _show(self, state: str, model: str) -> None:
        self._member = replace(self._member, state=state, models=(model,) if model else ())
        await self._membership.enter(self._member)

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            await self._membership.renew(self._member)


async def follow(client: httpx.AsyncClient, path: str) -> AsyncIterator[tuple[bool, dict[str, Any]]]:
    """Yields pods of cells as they are by now, and whether they are there."""
    listed = (await client.get(path, params=_CELLS)).raise_for_status().json()
    for pod in listed["items"]:
        yield True, pod
    parameters = _CELLS | {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
    async with client.stream("GET", path, params=parameters) as events:
        async for line in events.aiter_lines():
            event = json.loads(line)
            yield event["type"] != "DELETED", event["object"]


async def main(options: argparse.Namespace) -> None:
    config = json.loads(options.kubeconfig.read_text())
    [cluster], [user] = config["clusters"], config["users"]
    database = Database.connect(options.redis_url, namespace=options.release)
    membership = Membership(database)
    workers: dict[str, PretendedWorker] = {}
    async with httpx.AsyncClient(
        base_url=cluster["cluster"]["server"],
        headers={"authorization": f"Bearer {user['user']['token']}"},
        verify=False,
        timeout=None,
    ) as client:
        async for is_there, pod in follow(client, f"/api/v1/namespaces/{options.namespace}/pods"):
            name, uid = f"{pod['metadata']['name']}-0", pod["metadata"]["uid"]
            runs = is_there and pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
            if runs and uid not in workers:
                workers[uid] = PretendedWorker(name, device=options.device, database=database, membership=membership)
                await workers[uid].start()
            elif not runs and uid in workers:
                await workers.pop(uid).end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    for flag in ("--namespace", "--release", "--redis-url", "--device"):
        parser.add_argument(flag, required=True)
    logging.basicConfig()
    asyncio.run(main(parser.parse_args()))
