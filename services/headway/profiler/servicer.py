"""ProfilerService over gRPC: convert, call, convert."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from headway.core.capture import CaptureRequest
from headway.core.model import ModelSpec
from headway.core.stage_profile import StageProfile
from headway.profiler.captures import Captures
from headway.profiler.imports import ImportedProfiles
from headway.profiler.service import ProfilerService, Progress
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.interceptors import Context
from headway.v1 import profiler_pb2, profiler_pb2_grpc


class ProfilerServicer(profiler_pb2_grpc.ProfilerServiceServicer):
    def __init__(self, service: ProfilerService, *, imported: ImportedProfiles, captures: Captures) -> None:
        self._service = service
        self._imported = imported
        self._captures = captures

    async def ProfileModel(
        self, request: profiler_pb2.ProfileModelRequest, context: Context
    ) -> AsyncIterator[profiler_pb2.ProfileModelResponse]:
        spec = from_pb(request.spec, ModelSpec)
        work = self._service.profile(spec, worker_id=request.worker_id, force=request.force)
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


def _progress_to_pb(progress: Progress) -> profiler_pb2.ProfileModelResponse:
    response = profiler_pb2.ProfileModelResponse(
        num_done=progress.num_done, num_total=progress.num_total, reused=progress.reused
    )
    if progress.profile is not None:
        response.profile.CopyFrom(to_pb(progress.profile, profiler_pb2.Profile))
    return response
