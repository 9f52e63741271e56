"""The command `headway fetch`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from headway.cli.fetching import cached_directory, fetch_to
from headway.cli.options import AsJson
from headway.core.codec import to_document
from headway.core.errors import HeadwayError, InvalidArgumentError
from headway.core.fetch_report import FetchReport
from headway.core.model_uri import ModelUri

app = typer.Typer(add_completion=False)


@app.command()
def fetch(
    *,
    uri: Annotated[
        str,
        typer.Argument(
            metavar="URI",
            help="hf://ORGANISATION/NAME, s3://BUCKET/PREFIX or oci://REGISTRY/REPOSITORY:TAG.",
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            help="The directory to bring it to, made where there is none. Default: one of ~/.cache/headway/models.",
            file_okay=False,
            resolve_path=True,
        ),
    ] = None,
    revision: Annotated[
        str, typer.Option(help="A branch, tag or commit of the hub; a tag or digest of a registry.")
    ] = "",
    sha256: Annotated[
        str,
        typer.Option(
            "--sha256",
            metavar="DIGEST",
            help="What `LC_ALL=C sha256sum -- * | sha256sum` says in the directory: other files are not taken.",
        ),
    ] = "",
    report: Annotated[
        Path | None,
        typer.Option(help="A file that says how far it is, and why it failed, as JSON.", dir_okay=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a model's files from Hugging Face, a bucket or a registry.

    Configuration, tokenizer and safetensors weights, and nothing else. Credentials come from the environment:
    HF_TOKEN; AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for buckets
    that are open to all; DOCKER_CONFIG. HF_ENDPOINT and AWS_ENDPOINT_URL name others than the public ones. A
    fetch that was ended goes on with what it had.
    """
    place = ModelUri.parse(uri, revision=revision)
    directory = to or cached_directory(place)
    latest = FetchReport(uri=str(place))

    def write(found: FetchReport) -> None:
        nonlocal latest
        latest = found
        if report is not None:
            _write(report, found)

    try:
        done = fetch_to(place, directory, sha256=sha256, report=write)
    except HeadwayError as error:
        if report is not None:
            _write(report, FetchReport(uri=latest.uri, version=latest.version, error=str(error)))
        raise
    if as_json:
        typer.echo(json.dumps({"directory": str(directory), **to_document(done)}, indent=2))
        return
    typer.echo(str(directory))
    typer.echo(f"  {decimal(done.num_bytes)}{f', version {done.version}' if done.version else ''}")
    typer.echo(f"  sha256 {done.sha256}")


def _write(path: Path, report: FetchReport) -> None:
    """Readers never see half of it."""
    written = path.with_name(f"{path.name}.new")
    try:
        written.write_text(json.dumps(to_document(report)))
        written.replace(path)
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be written: {error.strerror}.", field="--report") from None
