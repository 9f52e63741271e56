"""Hugging Face's hub, or a mirror of it: HF_ENDPOINT says which, HF_TOKEN who asks."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from headway.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from headway.core.model_uri import ModelUri
from headway.fetch.selection import select
from headway.fetch.source import RemoteFile

_REFUSED = (401, 403)


class HubSource:
    """A model of the hub, at the commit that its revision is now."""

    def __init__(self, uri: ModelUri) -> None:
        self._uri = uri
        with _faults(uri):
            info = HfApi().model_info(uri.location, revision=uri.revision, files_metadata=True)
        siblings = info.siblings or []
        wanted = select([sibling.rfilename for sibling in siblings])
        self.version = info.sha or uri.revision
        self.files = tuple(
            RemoteFile(
                name=sibling.rfilename,
                key=sibling.rfilename,
                num_bytes=sibling.size or 0,
                sha256=sibling.lfs.sha256 if sibling.lfs else "",
            )
            for sibling in siblings
            if sibling.rfilename in wanted
        )

    def download(self, file: RemoteFile, directory: Path) -> None:
        with _faults(self._uri):
            hf_hub_download(self._uri.location, file.key, revision=self.version, local_dir=directory)


@contextmanager
def _faults(uri: ModelUri) -> Iterator[None]:
    try:
        yield
    except GatedRepoError:
        raise PermissionDeniedError(
            f"{uri} is for those who have accepted its terms.",
            hint="Accept them on the hub, and give that account's token as HF_TOKEN.",
        ) from None
    except RepositoryNotFoundError:
        raise NotFoundError(
            f"The hub has no model {uri.location}, or does not show it to everybody.",
            hint="Check its name; of a private one give a token that may read it as HF_TOKEN.",
        ) from None
    except RevisionNotFoundError:
        raise NotFoundError(f"{uri.location} has no revision {uri.revision}.", field="revision") from None
    except HFValidationError as error:
        raise InvalidArgumentError(f"{uri} is no name of a model: {error}.") from None
    except OfflineModeIsEnabled:
        raise FailedPreconditionError("HF_HUB_OFFLINE is set: nothing is fetched.", hint="Unset it.") from None
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code in _REFUSED:
            raise PermissionDeniedError(
                f"The hub does not give {uri} to this account.", hint="Give a token that may read it as HF_TOKEN."
            ) from None
        raise UnavailableError(f"The hub does not give {uri}: {error}.", hint="Try again.") from None
    except (httpx2.HTTPError, LocalEntryNotFoundError) as error:
        raise UnavailableError(
            f"The hub does not answer: {error}.",
            hint="Is it to be reached from here? HTTPS_PROXY names a proxy, HF_ENDPOINT a mirror.",
        ) from None
