"""The OpenAPI description is valid, and answers of the gateway match it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from nearsight.common.errors import NotFound
from nearsight.edge.gateway.openapi import openapi_document
from support.gateway import RECOGNIZE, Browser, ScriptedEdge
from support.recognition_server import always, failing, response

if TYPE_CHECKING:  # all workers import this module, and one of them validates
    from jsonschema import Draft202012Validator


def schema_of(path: str, method: str, status: int) -> Draft202012Validator:
    """The schema of a response, with resolved references."""
    from jsonschema import Draft202012Validator

    document: Any = openapi_document()
    response = document["paths"][path][method]["responses"][str(status)]
    schema = response["content"]["application/json"]["schema"]
    return Draft202012Validator({**schema, "components": document["components"]})


def test_the_description_is_valid_and_served(browser: Browser) -> None:
    from openapi_spec_validator import validate

    document: Any = openapi_document()
    validate(document)
    assert browser.get("/openapi.json").json == document


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (always("edge"), 200),
        (lambda: response("cloud", None), 200),
        (failing(NotFound("there is no catalogue")), 404),
    ],
)
def test_answers_are_as_described(browser: Browser, edge: ScriptedEdge, answer: Any, status: int) -> None:
    edge.recognition.answer = answer
    reply = browser.recognize(b"an image")
    assert reply.status == status
    schema_of("/v1/catalogues/{name}/recognize", "post", status).validate(reply.json)


def test_other_routes_answer_as_described(browser: Browser) -> None:
    for path in ("/v1/catalogues", "/healthz", "/readyz"):
        schema_of(path, "get", 200).validate(browser.get(path).json)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", RECOGNIZE, 405),
        ("PUT", "/", 405),
        ("POST", f"{RECOGNIZE}/", 404),
        ("GET", "/v1/catalogues/", 404),
    ],
)
def test_unknown_routes_are_answered_in_the_same_format(
    browser: Browser, method: str, path: str, status: int
) -> None:
    reply = browser.request(method, path)
    assert reply.status == status
    assert set(reply.json["error"]) == {"code", "message", "advice"}
