"""The description of the HTTP interface, OpenAPI 3.1. It has no streams; see docs/gateway.md."""

from __future__ import annotations

from collections.abc import Mapping

from nearsight import __version__
from nearsight.common.errors import StatusCode
from nearsight.edge.gateway.bodies import FIELD, FORM, IMAGE_TYPES

Json = dict[str, object]

_STRING: Json = {"type": "string"}
_NUMBER: Json = {"type": "number"}
_TEXT_OR_NULL: Json = {"type": ["string", "null"]}
_CODES = tuple(code.name for code in StatusCode if code is not StatusCode.OK)
_REFUSALS = {
    "400": "The request has no image, or an unsupported type",
    "401": "A token is needed, or is invalid",
    "403": "The token may not use this catalogue, or pages of this origin are not allowed",
    "404": "There is no such catalogue",
    "408": "The request did not arrive in time",
    "413": "The image is too large",
    "429": "The token sends more than its rate allows; see Retry-After",
    "500": "Internal error",
    "503": "The edge is unreachable or overloaded; see Retry-After",
    "504": "The edge did not answer in time",
}


def openapi_document() -> Json:
    """Content of ``GET /openapi.json``."""
    name: Json = {
        "name": "name",
        "in": "path",
        "required": True,
        "description": "Name of the catalogue",
        "schema": _STRING,
    }
    image: Json = {"type": "string", "format": "binary"}
    content: Json = {kind: {"schema": image} for kind in IMAGE_TYPES}
    content[FORM] = {"schema": _object({FIELD: image})}
    recognize: Json = {
        "operationId": "recognize",
        "summary": "Recognise the object in a photo",
        "parameters": [name],
        "requestBody": {"required": True, "content": content},
        "responses": _responses("The object, or unknown", "Recognition", tuple(_REFUSALS)),
    }
    catalogues: Json = {
        "operationId": "listCatalogues",
        "summary": "List the catalogues that the caller may use",
        "responses": _responses("The catalogues", "Catalogues", ("401", "403", "503", "504")),
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "nearsight gateway",
            "version": __version__,
            "summary": "Recognition at the edge, over HTTP",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": {
            "/v1/catalogues": {"get": catalogues},
            "/v1/catalogues/{name}/recognize": {"post": recognize},
            "/healthz": {"get": _health("healthz", "Whether this process lives", "Alive", ())},
            "/readyz": {"get": _health("readyz", "Whether the edge is ready", "Ready", ("503", "504"))},
        },
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _health(name: str, summary: str, schema: str, refusals: tuple[str, ...]) -> Json:
    responses = _responses("Yes", schema, refusals)
    return {"operationId": name, "summary": summary, "security": [{}], "responses": responses}


def _responses(description: str, schema: str, refusals: tuple[str, ...]) -> Json:
    found: Json = {"200": {"description": description, "content": _json(schema)}}
    return found | {code: {"description": _REFUSALS[code], "content": _json("Refusal")} for code in refusals}


def _json(schema: str) -> Json:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _object(properties: Mapping[str, object]) -> Json:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _list(items: object, **bounds: int) -> Json:
    return {"type": "array", "items": items, **bounds}


def _schemas() -> Json:
    corner = _list(_NUMBER, minItems=2, maxItems=2)
    hop = {"tier": _STRING, "queue_ms": _NUMBER, "compute_ms": _NUMBER, "next_tier_ms": _NUMBER}
    size = {"type": "integer"}
    recognition = {
        "known": {"type": "boolean"},
        "object_id": _TEXT_OR_NULL,
        "label": _TEXT_OR_NULL,
        "metadata": {"type": "object", "additionalProperties": _STRING},
        "confidence": {"type": ["number", "null"]},
        "corners": {
            "description": "In pixels of the upright image that was sent, from the top left, clockwise",
            "anyOf": [_list(corner, minItems=4, maxItems=4), {"type": "null"}],
        },
        "answered_by": {"type": "string", "description": "edge or cloud"},
        "grain": {"type": "string", "enum": ["object", "result", "network"]},
        "latency_ms": {"type": "number", "description": "From the gateway to the edge and back"},
        "hops": _list(_object({**hop, "received_bytes": size, "sent_bytes": size})),
        "trace_id": _STRING,
    }
    error = {"code": {"type": "string", "enum": list(_CODES)}, "message": _STRING, "advice": _STRING}
    return {
        "Recognition": _object(recognition),
        "Catalogues": _object({"catalogues": _list(_object({"name": _STRING}))}),
        "Refusal": _object({"error": _object(error)}),
        "Alive": _object({"alive": {"const": True}}),
        "Ready": _object({"ready": {"const": True}}),
    }
