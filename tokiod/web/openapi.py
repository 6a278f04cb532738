"""The OpenAPI document of the API, from the declarations that the server uses itself."""

from __future__ import annotations

import inspect
from http import HTTPStatus
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from tokiod.web.operations import JSON_TYPE, OPERATIONS
from tokiod.web.refusal import ErrorAnswer

if TYPE_CHECKING:
    from tokiod.web.operations import Operation
    from tokiod.web.query import Parameter

API_VERSION = "1.0.0"
_REFERENCE = "#/components/schemas/{name}"
_SCHEMAS_OF_OTHERS = {"text/plain": {"type": "string"}, "text/event-stream": {"type": "string"}}


def document() -> dict[str, Any]:
    """Return the document, by version 3.1 of the OpenAPI Specification."""
    answers = [one.answer for one in OPERATIONS if one.answer is not None]
    schemas, components = msgspec.json.schema_components([ErrorAnswer, *answers], ref_template=_REFERENCE)
    for one in components.values():
        one["description"] = inspect.cleandoc(one["description"]).replace("None", "null")
    of = dict(zip([ErrorAnswer.__name__, *(one.name for one in OPERATIONS if one.answer is not None)], schemas, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tokiod web",
            "summary": "The telemetry of an HPC centre's storage, read-only, from the archive's files.",
            "description": "Times are UTC epoch seconds unless a field states another unit. Spans are half-open. Missing is null.",
            "version": API_VERSION,
        },
        "paths": {one.path: {"get": _described(one, of)} for one in OPERATIONS},
        "components": {"schemas": components},
    }


def encoded() -> bytes:
    """Return the document as a file."""
    return msgspec.json.format(msgspec.json.encode(document()), indent=2) + b"\n"


def _described(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    parameters = [_parameter(one) for one in operation.parameters]
    if operation.has_tag:
        header = {"name": "If-None-Match", "in": "header", "required": False, "description": "The ETag of an answer that the client has."}
        parameters.append(header | {"schema": {"type": "string"}})
    return {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {"200": _success(operation, schemas)} | _unchanged(operation) | _errors(operation, schemas[ErrorAnswer.__name__]),
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    is_needed = parameter.default is None
    described = {"name": parameter.name, "in": "query", "description": parameter.meaning, "required": is_needed}
    example: Any = parameter.example if parameter.most is None else int(parameter.example)
    return described | {"schema": parameter.schema(), "example": example}


def _success(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = schemas.get(operation.name, _SCHEMAS_OF_OTHERS.get(operation.content_type, {}))
    tag = {"headers": {"ETag": {"description": "Changes with the answer.", "schema": {"type": "string"}}}} if operation.has_tag else {}
    return {"description": operation.summary, "content": {operation.content_type: {"schema": schema}}} | tag


def _unchanged(operation: Operation) -> dict[str, Any]:
    return {"304": {"description": "The answer is the one that the client has."}} if operation.has_tag else {}


def _errors(operation: Operation, schema: dict[str, Any]) -> dict[str, Any]:
    """Describe the errors of each status, with the types that it can have."""
    found = {}
    for status, errors in groupby(sorted(operation.all_errors, key=lambda one: one.status), key=lambda one: one.status):
        kinds = list(errors)
        names = {"properties": {"error": {"properties": {"type": {"enum": [one.name for one in kinds]}}}}}
        again = {"headers": {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}}
        found[str(status)] = {
            "description": f"{HTTPStatus(status).phrase}. " + " ".join(f"{one.name}: {one.meaning}" for one in kinds),
            "content": {JSON_TYPE: {"schema": {"allOf": [schema, names]}}},
        } | (again if any(one.retry_after for one in kinds) else {})
    return found
