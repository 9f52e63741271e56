"""ProfilerService over gRPC: converts requests, calls the service, converts results."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from headway.core.capture import CaptureRequest
from headway.core.hardware.calibration import HardwareWanted
from headway.core.measuring_job import MeasuringJob
from headway.core.model import ModelSpec
from headway.core.profiling_units import ProfilingUnits
from headway.core.program import Program
from headway.core.program_check import check_program
from headway.core.stage_profile import StageProfile
from headway.profiler.captures import Captures
from headway.profiler.hardware.service import HardwareService
from headway.profiler.imports import ImportedProfiles
from headway.profiler.jobs.jobs import MeasuringJobs
from headway.profiler.profile_store import ProfileStore
from headway.profiler.service import ProfilerService, ProfilingProgress
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.interceptors import Context
from headway.v1 import profiler_pb2, profiler_pb2_grpc


class ProfilerServicer(profiler_pb2_grpc.ProfilerServiceServicer):
    def __init__(
        self,
        service: ProfilerService,
        *,
        imported: ImportedProfiles,
        captures: Captures,
        jobs: MeasuringJobs,
        profile_store: ProfileStore,
        hardware: HardwareService,
    ) -> None:
        self._service = service
        self._imported = imported
        self._captures = captures
        self._jobs = jobs
        self._profile_store = profile_store
        self._hardware = hardware

    async def ProfileModel(
        self, request: profiler_pb2.ProfileModelRequest, context: Context
    ) -> AsyncIterator[profiler_pb2.ProfileModelResponse]:
        spec = from_pb(request.spec, ModelSpec)
        work = self._service.profile(
            spec,
            worker_id=request.worker_id,
            force=request.force,
            model=request.model,
            beside_others=request.beside_others,
        )
        async with aclosing(work):
            async for progress in work:
                yield _progress_to_pb(progress)

    async def GetProfile(
        self, request: profiler_pb2.GetProfileRequest, context: Context
    ) -> profiler_pb2.GetProfileResponse:
        profile = await self._service.get(request.profile_id)
        return profiler_pb2.GetProfileResponse(profile=to_pb(profile, profiler_pb2.Profile))

    async def ListProfiles(
        self, request: profiler_pb2.ListProfilesRequest, context: Context
    ) -> profiler_pb2.ListProfilesResponse:
        profiles = await self._service.list()
        return profiler_pb2.ListProfilesResponse(
            profiles=[to_pb(profile, profiler_pb2.Profile) for profile in profiles]
        )

    async def ImportProfiles(
        self, request: profiler_pb2.ImportProfilesRequest, context: Context
    ) -> profiler_pb2.ImportProfilesResponse:
        summaries = await self._imported.take_in(request.content, hardware=request.hardware)
        return profiler_pb2.ImportProfilesResponse(
            profiles=[to_pb(summary, profiler_pb2.ProfileSummary) for summary in summaries]
        )

    async def ListImported(
        self, request: profiler_pb2.ListImportedRequest, context: Context
    ) -> profiler_pb2.ListImportedResponse:
        summaries = await self._imported.list()
        return profiler_pb2.ListImportedResponse(
            profiles=[to_pb(summary, profiler_pb2.ProfileSummary) for summary in summaries]
        )

    async def GetImported(
        self, request: profiler_pb2.GetImportedRequest, context: Context
    ) -> profiler_pb2.GetImportedResponse:
        profile = await self._imported.get(request.profile_id)
        if isinstance(profile, StageProfile):
            return profiler_pb2.GetImportedResponse(stages=to_pb(profile, profiler_pb2.StageProfile))
        return profiler_pb2.GetImportedResponse(slices=to_pb(profile, profiler_pb2.SliceProfile))

    async def ExportProfiles(
        self, request: profiler_pb2.ExportProfilesRequest, context: Context
    ) -> profiler_pb2.ExportProfilesResponse:
        return profiler_pb2.ExportProfilesResponse(content=await self._imported.give_out(request.profile_ids))

    async def CaptureModel(
        self, request: profiler_pb2.CaptureModelRequest, context: Context
    ) -> AsyncIterator[profiler_pb2.CaptureModelResponse]:
        wanted = CaptureRequest(
            source=request.source,
            batch=request.batch,
            seq=request.seq if request.HasField("seq") else None,
            train=request.train,
        )
        deadline_s = request.deadline_s if request.HasField("deadline_s") else None
        async with aclosing(self._captures.capture(wanted, deadline_s=deadline_s)) as work:
            async for progress in work:
                yield to_pb(progress, profiler_pb2.CaptureModelResponse)

    async def StartMeasuring(
        self, request: profiler_pb2.StartMeasuringRequest, context: Context
    ) -> profiler_pb2.StartMeasuringResponse:
        subject, programs = await asyncio.to_thread(_subject_from_pb, request)  # a large model takes a second
        job = await self._jobs.start(
            subject, programs, worker_id=request.worker_id, share=request.share, longest_s=request.longest_s
        )
        return profiler_pb2.StartMeasuringResponse(job=_job_to_pb(job))

    async def WatchMeasuring(
        self, request: profiler_pb2.WatchMeasuringRequest, context: Context
    ) -> AsyncIterator[profiler_pb2.WatchMeasuringResponse]:
        async with aclosing(self._jobs.watch(request.job_id)) as states:
            async for job, profile in states:
                response = profiler_pb2.WatchMeasuringResponse(job=_job_to_pb(job))
                if profile is not None:
                    response.profile.CopyFrom(to_pb(profile, profiler_pb2.ModelProfile))
                yield response

    async def CancelMeasuring(
        self, request: profiler_pb2.CancelMeasuringRequest, context: Context
    ) -> profiler_pb2.CancelMeasuringResponse:
        return profiler_pb2.CancelMeasuringResponse(job=_job_to_pb(await self._jobs.cancel(request.job_id)))

    async def ListMeasuring(
        self, request: profiler_pb2.ListMeasuringRequest, context: Context
    ) -> profiler_pb2.ListMeasuringResponse:
        return profiler_pb2.ListMeasuringResponse(jobs=[_job_to_pb(job) for job in await self._jobs.list()])

    async def GetModelProfile(
        self, request: profiler_pb2.GetModelProfileRequest, context: Context
    ) -> profiler_pb2.GetModelProfileResponse:
        profile = await self._profile_store.get(request.profile_id)
        return profiler_pb2.GetModelProfileResponse(profile=to_pb(profile, profiler_pb2.ModelProfile))

    async def ListModelProfiles(
        self, request: profiler_pb2.ListModelProfilesRequest, context: Context
    ) -> profiler_pb2.ListModelProfilesResponse:
        summaries = await self._profile_store.list()
        return profiler_pb2.ListModelProfilesResponse(
            profiles=[to_pb(summary, profiler_pb2.ModelProfileSummary) for summary in summaries]
        )

    async def ProfileHardware(
        self, request: profiler_pb2.ProfileHardwareRequest, context: Context
    ) -> AsyncIterator[profiler_pb2.ProfileHardwareResponse]:
        wanted = from_pb(request.wanted, HardwareWanted)
        work = self._hardware.profile(wanted, worker_id=request.worker_id, share=request.share)
        async with aclosing(work) as steps:
            async for step in steps:
                yield to_pb(step, profiler_pb2.ProfileHardwareResponse)

    async def ListHardware(
        self, request: profiler_pb2.ListHardwareRequest, context: Context
    ) -> profiler_pb2.ListHardwareResponse:
        summaries = await self._hardware.list()
        return profiler_pb2.ListHardwareResponse(
            profiles=[to_pb(summary, profiler_pb2.HardwareSummary) for summary in summaries]
        )

    async def GetHardware(
        self, request: profiler_pb2.GetHardwareRequest, context: Context
    ) -> profiler_pb2.GetHardwareResponse:
        profile = await self._hardware.get(request.profile_id)
        return profiler_pb2.GetHardwareResponse(profile=to_pb(profile, profiler_pb2.HardwareProfile))

    async def ForgetProfiles(
        self, request: profiler_pb2.ForgetProfilesRequest, context: Context
    ) -> profiler_pb2.ForgetProfilesResponse:
        num_profiles = await self._profile_store.forget(request.profile_ids)
        stale = [await room.forget_stale() for room in (self._profile_store, self._hardware) if request.stale]
        return profiler_pb2.ForgetProfilesResponse(
            num_profiles=num_profiles + sum(profiles for profiles, _ in stale),
            num_measurements=sum(measurements for _, measurements in stale),
        )


def _subject_from_pb(request: profiler_pb2.StartMeasuringRequest) -> tuple[ProfilingUnits, list[Program]]:
    programs = [from_pb(program, Program) for program in request.programs]
    for program in programs:
        check_program(program)
    return from_pb(request.subject, ProfilingUnits), programs


def _job_to_pb(job: MeasuringJob) -> profiler_pb2.MeasuringJob:
    return to_pb(job, profiler_pb2.MeasuringJob)


def _progress_to_pb(progress: ProfilingProgress) -> profiler_pb2.ProfileModelResponse:
    response = profiler_pb2.ProfileModelResponse(
        num_done=progress.num_done, num_total=progress.num_total, reused=progress.reused
    )
    if progress.profile is not None:
        response.profile.CopyFrom(to_pb(progress.profile, profiler_pb2.Profile))
    return response
