"""Names of hosts that cannot be resolved for a while, or lead elsewhere later: of Redis, and of a process.

In a mount namespace of its own, the test's names are in an /etc/hosts of its own, which it rewrites.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headway.store.embedded import find_redis_server

WITHIN = """
import asyncio, subprocess, sys
from pathlib import Path

import grpc
import headway.rpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from headway.core.errors import UnavailableError
from headway.rpc.peers import CHANNEL_OPTIONS
from headway.store.membership import Member, Membership
from headway.store.redis import Database

hosts, server = Path(sys.argv[1]), sys.argv[2]
subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
PORT = 23071
MEMBER = Member(kind="router", member_id="r", endpoint="a:1", metrics_endpoint="", pid=1, started_at_s=1.0)


def lead(address):
    hosts.write_text(f"127.0.0.1 localhost\\n{address} headway-store.test headway-worker.test\\n" if address else "")


def redis_at(address):
    command = [server, "--bind", address, "--port", str(PORT), "--save", "", "--daemonize", "no"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


async def holds(look):
    while True:
        try:
            return await look()
        except (UnavailableError, grpc.aio.AioRpcError):
            await asyncio.sleep(0.05)


async def refused(look):
    try:
        await look()
    except UnavailableError:
        return
    raise AssertionError("it was reached")


async def follow_redis():
    lead("")
    database = Database.connect(f"redis://headway-store.test:{PORT}", namespace="names")
    membership = Membership(database)
    await refused(lambda: membership.enter(MEMBER))
    first = redis_at("127.0.0.2")
    lead("127.0.0.2")
    await holds(lambda: membership.enter(MEMBER))
    lead("")
    await membership.renew(MEMBER)  # what is connected needs no name
    second = redis_at("127.0.0.3")
    first.kill(); first.wait()
    await refused(lambda: membership.renew(MEMBER))
    lead("127.0.0.3")
    await holds(lambda: membership.renew(MEMBER))
    assert len(await database.redis.keys("names:member:*")) == 1
    await database.close()
    second.kill(); second.wait()


async def serve(address):
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    server.add_insecure_port(f"{address}:{PORT}")
    await server.start()
    return server


async def follow_process():
    first = await serve("127.0.0.2")
    lead("127.0.0.2")
    async with grpc.aio.insecure_channel(f"headway-worker.test:{PORT}", options=CHANNEL_OPTIONS) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        await holds(lambda: check(health_pb2.HealthCheckRequest()))
        second = await serve("127.0.0.3")
        lead("127.0.0.3")
        await first.stop(None)
        await holds(lambda: check(health_pb2.HealthCheckRequest()))
        await second.stop(None)


async def main():
    async with asyncio.timeout(50):
        await follow_redis()
        await follow_process()


asyncio.run(main())
print("followed")
"""


def test_a_name_that_leads_nowhere_is_asked_for_again_and_one_that_leads_elsewhere_is_followed(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("no names of its own can be given: there is no unshare command")
    if (
        apart := subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    ).returncode:
        pytest.skip(f"no names of its own can be given: {apart.stderr.strip()}")
    hosts = tmp_path / "hosts"
    hosts.touch()
    command = ["unshare", "--mount", sys.executable, "-c", WITHIN, str(hosts), str(find_redis_server())]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout.splitlines()[-1:] == ["followed"], ran.stderr
