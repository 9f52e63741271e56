"""An S3 server that others wrote, with what boto3 puts there."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import httpx

from headway.cli.ports import take_port
from tests.integration.stack import wait_for

ACCOUNT = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "something", "AWS_REGION": "us-east-1"}


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Attributes:
    name: of the bucket.
    environment: what a process reads it with.
    """

    name: str
    environment: dict[str, str]
    client: Any

    def put(self, directory: Path, *, prefix: str) -> None:
        for path in directory.rglob("*"):
            if path.is_file():
                key = f"{prefix}/{path.relative_to(directory).as_posix()}".lstrip("/")
                self.client.put_object(Bucket=self.name, Key=key, Body=path.read_bytes())


@contextmanager
def serving_bucket(directory: Path) -> Iterator[Bucket]:
    port = take_port("127.0.0.1", 0, option="--port")
    url = f"http://127.0.0.1:{port}"
    program = Path(sys.executable).with_name("moto_server")
    with (directory / "moto.log").open("wb") as log:
        server = subprocess.Popen([program, "--host", "127.0.0.1", "--port", str(port)], stdout=log, stderr=log)
    try:
        wait_for(lambda: httpx.get(f"{url}/moto-api/").is_success, timeout_s=60)
        client = boto3.client(
            "s3",
            endpoint_url=url,
            aws_access_key_id=ACCOUNT["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=ACCOUNT["AWS_SECRET_ACCESS_KEY"],
            region_name=ACCOUNT["AWS_REGION"],
        )
        client.create_bucket(Bucket="models")
        environment = {**ACCOUNT, "AWS_ENDPOINT_URL": url}
        yield Bucket(name="models", environment=environment, client=client)
    finally:
        server.kill()
        server.wait()
