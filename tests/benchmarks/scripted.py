"""A real HTTP server that streams completions as a script says, in process or as a process of its own."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]
Answer = Callable[[Body, "Reply"], Awaitable[None]]

EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(slots=True)
class Reply:
    """The answer to one request, written piece by piece."""

    writer: asyncio.StreamWriter

    async def start(self) -> None:
        await self.raw(EVENT_STREAM)

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def event(self, document: Body) -> None:
        await self.chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    async def token(self, text: str = "x") -> None:
        await self.event({"choices": [{"index": 0, "text": text, "finish_reason": None}]})

    async def usage(self, num_tokens: int) -> None:
        await self.event({"choices": [], "usage": {"completion_tokens": num_tokens}})

    async def finish(self) -> None:
        await self.chunk(b"data: [DONE]\n\n")
        await self.raw(b"0\r\n\r\n")

    async def document(self, status: str, document: Body) -> None:
        body = json.dumps(document).encode()
        await self.raw(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    def hang_up(self) -> None:
        self.writer.transport.abort()


def streamed(*, first_s: float = 0.0, gap_s: float = 0.0) -> Answer:
    """A complete answer: the first token after `first_s`, each further one `gap_s` later."""

    async def answer(body: Body, reply: Reply) -> None:
        await reply.start()
        await asyncio.sleep(first_s)
        for index in range(body["max_tokens"]):
            if index:
                await asyncio.sleep(gap_s)
            await reply.token()
        await reply.usage(body["max_tokens"])
        await reply.finish()

    return answer


@dataclass(slots=True)
class ScriptedServer:
    """Answers GET with 200 and POST by `answer`; remembers bodies and counts connections."""

    answer: Answer = field(default_factory=streamed)
    bodies: list[Body] = field(default_factory=list)
    num_connections: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serving(self, *, port: int = 0) -> AsyncIterator["ScriptedServer"]:
        server = await asyncio.start_server(self._handle, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            while not writer.is_closing():
                await self._exchange(reader, Reply(writer))
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, reply: Reply) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if head.startswith("get "):
            await reply.document("200 OK", {})
            return
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        self.bodies.append(body)
        await self.answer(body, reply)


async def serve_until_terminated(port: int) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with ScriptedServer().serving(port=port):
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(serve_until_terminated(int(sys.argv[1])))
