"""Has the files of declared models fetched to the volume, by jobs, and knows how far they are."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.controller.kubernetes.api import KubernetesApi
from headway.controller.kubernetes.fetch_job import (
    FETCH_LABEL,
    JOBS,
    FetchTemplate,
    ModelFetch,
    ending_of,
    fetch_job,
)
from headway.controller.kubernetes.model_resource import ModelResource
from headway.controller.kubernetes.model_volume import ModelVolume
from headway.controller.kubernetes.watch import ResourceWatch
from headway.core.codec import from_document
from headway.core.errors import (
    ErrorCode,
    FailedPreconditionError,
    HeadwayError,
    InvalidArgumentError,
    UnavailableError,
)
from headway.core.fetch_report import FETCH_RECORD, FetchReport

_STEP_PERCENT = 5  # a status is written anew for each


class FetchingError(UnavailableError):
    """A model's files are on their way."""


class FetchFailedError(UnavailableError):
    """A model's files could not be fetched; it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Attributes:
    report: the directory's own where it is there, else that of who fetches it.
    """

    is_there: bool
    report: FetchReport | None


class ModelFetches:
    """Starts a job for each place that a model is declared by and that is not on the volume, and another one once
    Kubernetes has forgotten one that failed.

    Attributes:
        jobs: to be followed, where there is a template.

    Args:
        template: of jobs; None where nothing is fetched.
    """

    def __init__(self, api: KubernetesApi, *, template: FetchTemplate | None, volume: ModelVolume) -> None:
        self.jobs = ResourceWatch(api, JOBS, selector=FETCH_LABEL)
        self._api = api
        self._template = template
        self._volume = volume
        self._states: Mapping[ModelFetch, _State] = {}
        self._refused: dict[ModelFetch, HeadwayError] = {}

    @property
    def arrived(self) -> frozenset[ModelFetch]:
        """Those of which all files are there."""
        return frozenset(fetch for fetch, state in self._states.items() if state.is_there)

    async def keep(self, resources: Sequence[ModelResource]) -> None:
        """Looks what is there of what is wanted now, and starts the jobs that are missing."""
        wanted: dict[ModelFetch, list[ModelResource]] = {}
        for resource in resources:
            if (fetch := _fetch_of(resource)) is not None:
                wanted.setdefault(fetch, []).append(resource)
        self._states = await asyncio.to_thread(self._look, list(wanted)) if wanted else {}
        for fetch, owners in wanted.items():
            if self._template is None or self.jobs.objects is None or self._states[fetch].is_there:
                continue
            if self._template.name_of(fetch) not in self.jobs.objects:
                await self._start(fetch, self._template, owners)

    async def _start(self, fetch: ModelFetch, template: FetchTemplate, owners: Sequence[ModelResource]) -> None:
        """What the API server refuses, such as a pod above a quota, is tried again."""
        report = self._volume.report_path(fetch.uri, sha256=fetch.sha256)
        job = fetch_job(fetch, template, to=self._volume.fetched_path(fetch.uri), report=report, owners=owners)
        self._refused.pop(fetch, None)
        try:
            await self._api.apply(JOBS, template.name_of(fetch), job)
        except HeadwayError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            self._refused[fetch] = error

    def report_of(self, resource: ModelResource) -> FetchReport | None:
        """What was fetched for a resource; None where nothing was, or not all."""
        state = None if (fetch := _fetch_of(resource)) is None else self._states.get(fetch)
        return None if state is None or not state.is_there else state.report

    def fault_of(self, resource: ModelResource) -> HeadwayError | None:
        """Why the files of a resource's model are not there, or not the right ones; None where nothing is wrong with
        them, or they are not fetched."""
        if (fetch := _fetch_of(resource)) is None:
            return None
        state = self._states.get(fetch, _State(is_there=False, report=None))
        if state.is_there:
            return _other_digest(fetch, state.report)
        if self._template is None:
            return FailedPreconditionError(
                f"{fetch.uri} is not fetched: modelStorage.fetch.enabled is false.",
                hint="Upgrade the release with it, or copy the files to the volume and give pvc://CLAIM/DIRECTORY.",
                field="spec.uri",
            )
        return self._on_its_way(fetch, self._template.name_of(fetch), state.report)

    def _on_its_way(self, fetch: ModelFetch, name: str, report: FetchReport | None) -> HeadwayError:
        if fetch in self._refused:
            return self._refused[fetch]
        ending = ending_of((self.jobs.objects or {}).get(name, {}))
        if ending is not None and ending[0]:
            return FetchFailedError(
                f"Job {name} has fetched {fetch.uri}, and {self._volume.fetched_path(fetch.uri)} is not there.",
                hint="Pods of other nodes have to see what one writes: modelStorage is a volume that is shared.",
            )
        if report is not None and report.error:
            return FetchFailedError(report.error, hint=f"It is tried again; kubectl logs job/{name} tells more.")
        if ending is not None:
            return FetchFailedError(
                f"Job {name} failed: {ending[1]}.", hint=f"It is tried again; kubectl logs job/{name} tells why."
            )
        if report is not None and report.total_bytes:
            percent = 100 * report.num_bytes // report.total_bytes // _STEP_PERCENT * _STEP_PERCENT
            return FetchingError(f"{fetch.uri} is fetched: {percent} % of {report.total_bytes / 1e9:.1f} GB.")
        return FetchingError(f"{fetch.uri} is to be fetched by job {name}.")

    def _look(self, fetches: Sequence[ModelFetch]) -> dict[ModelFetch, _State]:
        return {fetch: self._state_of(fetch) for fetch in fetches}

    def _state_of(self, fetch: ModelFetch) -> _State:
        directory = self._volume.fetched_path(fetch.uri)
        if directory.is_dir():
            return _State(is_there=True, report=_read(directory / FETCH_RECORD))
        return _State(is_there=False, report=_read(self._volume.report_path(fetch.uri, sha256=fetch.sha256)))


def _read(path: Path) -> FetchReport | None:
    """None where nothing was told yet, or nothing that can be read."""
    try:
        return from_document(FetchReport, json.loads(path.read_bytes()), is_stored=True)
    except (OSError, ValueError, InvalidArgumentError):
        return None


def _fetch_of(resource: ModelResource) -> ModelFetch | None:
    """None where it is not fetched, and where what it says of that is wrong: who reads it tells."""
    try:
        uri = resource.fetched_from
    except InvalidArgumentError:
        return None
    return None if uri is None else ModelFetch(uri=uri, sha256=str(resource.spec.get("sha256", "")))


def _other_digest(fetch: ModelFetch, report: FetchReport | None) -> HeadwayError | None:
    told = "no known digest" if report is None else f"the digest {report.sha256}"
    if not fetch.sha256 or (report is not None and report.sha256 == fetch.sha256):
        return None
    return InvalidArgumentError(
        f"The files of {fetch.uri} had {told} when they were fetched, not {fetch.sha256}.",
        hint="Correct the digest, or give the revision that it is of.",
        field="spec.sha256",
    )
