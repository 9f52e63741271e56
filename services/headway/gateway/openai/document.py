"""What the API's own documentation (`/openapi.json`) says of its operations."""

from typing import Any

from fastapi import Security
from fastapi.security import HTTPBearer

from headway.gateway.openai.answer_schema import ErrorDocument
from headway.gateway.openai.schema import ChatRequest, CompletionRequest
from headway.gateway.openai.strict import ModelRequest

JSON = "application/json"

KEY = Security(HTTPBearer(auto_error=False, scheme_name="key", description="A client's, where any is set."))
OPERATOR_KEY = Security(HTTPBearer(auto_error=False, scheme_name="operator key", description="An operator's."))

_FAULTS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorDocument, "description": "The request is at fault, or there is no room for it now."},
    "5XX": {"model": ErrorDocument, "description": "The stack is at fault; a later try may succeed."},
}
_TEXT = {"type": "string"}
_EVENT = {"type": "object", "properties": {"event": _TEXT, "id": _TEXT, "data": _TEXT}, "required": ["data"]}
_STREAM = {"text/event-stream": {"schema": {**_EVENT, "description": "Each event of the answer, with stream."}}}
_MS = {"type": "number", "exclusiveMinimum": 0}
_ASKED = {
    "x-request-id": ({"type": "string", "pattern": "^[A-Za-z0-9._:/+=@-]{1,128}$"}, "A name for logs and traces."),
    "x-headway-tenant": (_TEXT, "Whose request it is, where keys do not tell."),
    "x-headway-slo-ttft-ms": (_MS, "Milliseconds to the first token."),
    "x-headway-slo-tpot-ms": (_MS, "Milliseconds for each further token."),
}
_RESUMED = {
    "x-headway-resumable": ({"enum": ["0", "1", "true", "false"]}, "Whether the stream can be taken up again."),
    "last-event-id": ({"type": "string", "pattern": "^.{1,400}:[0-9]{1,9}$"}, "The last event of it that came."),
}


METRICS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "There is no operator's key in the request.",
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/ErrorDocument"}}},
    }
}
"""The answers of /metrics besides its text."""


def answers(kind: Any, *, streams: bool = False, unready: Any = None) -> dict[int | str, dict[str, Any]]:
    """The answers of an operation.

    Args:
        kind: of the document that comes with 200.
        streams: whether events may come instead.
        unready: of the document that comes with 503, where that is no error.
    """
    whole: dict[str, Any] = {"model": kind}
    if streams:
        whole |= {"content": _STREAM, "description": "The whole answer, or its stream."}
    later: dict[int | str, dict[str, Any]] = (
        {503: {"model": unready, "description": "Not yet."}} if unready is not None else {}
    )
    return {200: whole, **later, **_FAULTS}


def asked(kind: type[ModelRequest]) -> dict[str, Any]:
    """The body and headers that a POST has; its endpoint reads them by itself."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    for definition in definitions.values():
        definition.pop("$defs", None)
    schema = _inline(schema, definitions)
    headers = _ASKED | (_RESUMED if issubclass(kind, (CompletionRequest, ChatRequest)) else {})
    return {
        "parameters": [
            {"name": name, "in": "header", "required": False, "schema": value, "description": words}
            for name, (value, words) in headers.items()
        ],
        "requestBody": {"required": True, "content": {JSON: {"schema": schema}}},
    }


def _inline(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema with references replaced by what they refer to."""
    if isinstance(schema, list):
        return [_inline(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inline(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    # A discriminator refers to the schemas that are in its place already.
    return {key: _inline(value, definitions) for key, value in schema.items() if key != "discriminator"}
