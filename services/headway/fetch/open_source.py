"""Which kind of place a name is of."""

from headway.core.model_uri import ModelUri, UriScheme
from headway.fetch.source import ModelSource


def open_source(uri: ModelUri) -> ModelSource:
    """Asks a place what it has.

    Raises:
        NotFoundError: there is no such model, or revision of it.
        PermissionDeniedError: credentials are missing, or do not suffice.
        UnavailableError: the place does not answer.
    """
    if uri.scheme is UriScheme.HF:
        from headway.fetch.hub import HubSource

        return HubSource(uri)
    if uri.scheme is UriScheme.S3:
        from headway.fetch.bucket import BucketSource

        return BucketSource(uri)
    from headway.fetch.registry import RegistrySource

    return RegistrySource(uri)
