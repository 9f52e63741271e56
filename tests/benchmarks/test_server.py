"""Servers as real processes: started, measured, ended."""

import asyncio
import os

import psutil
import pytest

from benchmarks.serve.server import ServerError
from tests.benchmarks.conftest import MakeServer


def descendants() -> list[psutil.Process]:
    return psutil.Process(os.getpid()).children(recursive=True)


async def test_start_times_end_with_the_first_token(make_server: MakeServer) -> None:
    server = make_server(command="sleep 0.5; exec {server} {port}")
    try:
        times = await server.start()
        assert 0.5 < times.ready_s <= times.first_token_s < 20
    finally:
        await server.stop()


async def test_memory_and_idle_cpu_cover_the_whole_process_tree(make_server: MakeServer) -> None:
    server = make_server(command="(while :; do :; done) & {server} {port} & wait")
    try:
        await server.start()
        assert server.pss_bytes() > 5 * 2**20
        assert await server.idle_cpu_share(seconds=0.5) > 0.1
    finally:
        await server.stop(limit_s=0.5)
    assert server.pss_bytes() == 0


async def test_stop_lets_a_server_end_by_itself(make_server: MakeServer) -> None:
    server = make_server(command="trap 'kill %1; echo ended; exit' TERM; {server} {port} & wait")
    await server.start()
    await server.stop()
    assert server.log_path.read_text().startswith("ended\n")


async def test_stop_kills_what_stays(make_server: MakeServer) -> None:
    before = set(descendants())
    server = make_server(command="trap '' TERM; (trap '' TERM; sleep 60) & {server} {port}; sleep 60")
    await server.start()
    await server.stop(limit_s=0.3)
    await asyncio.sleep(0.1)
    assert set(descendants()) <= before


async def test_a_server_that_ends_at_once_is_reported_with_its_log(make_server: MakeServer) -> None:
    server = make_server(command="echo no such model; exit 3")
    with pytest.raises(ServerError, match=r"ended with code 3:\nno such model"):
        await server.start()
    await server.stop()
