"""HTTP routes of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from nearsight.common.errors import InternalError, InvalidArgument, NearsightError, NotFound, Unavailable
from nearsight.edge.gateway.bodies import image_of
from nearsight.edge.gateway.errors import error_response, json_response
from nearsight.edge.gateway.openapi import openapi_document
from nearsight.edge.gateway.page_files import PageFiles
from nearsight.edge.gateway.services import GatewayServices
from nearsight.edge.gateway.streams import Streams

_HEALTH_TIMEOUT_S = 2.0
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Api:
    """Handlers of HTTP requests, for the event loop."""

    services: GatewayServices
    """Objects that all requests share."""

    def routes(self) -> list[BaseRoute]:
        """All routes except streams."""
        page = PageFiles()
        named = {
            "/v1/catalogues": ("catalogues", self.catalogues),
            "/healthz": ("healthz", self.healthz),
            "/readyz": ("readyz", self.readyz),
            "/openapi.json": ("openapi", self.openapi),
            **dict.fromkeys(page.paths, ("page", page.serve)),
        }
        return [
            Route(
                "/v1/catalogues/{name}/recognize",
                self._counted("recognize", self.recognize),
                methods=["POST"],
            ),
            *(Route(path, self._counted(name, handler)) for path, (name, handler) in named.items()),
        ]

    async def recognize(self, request: Request) -> Response:
        """Recognise the object in one image."""
        services, catalogue = self.services, request.path_params["name"]
        visitor = services.access.identify(request)
        services.access.check(visitor, catalogue)
        services.access.charge(visitor)
        with services.access.holding() as hold:
            image = await image_of(request, services.limits, hold)
            client_id = f"{services.client_id}/{visitor.name}"
            outcome = await services.edge.recognize(image, catalogue, client_id)
        services.metrics.edge_seconds.labels("recognize").observe(outcome.latency_ms / 1000)
        return json_response(outcome.to_json())

    async def catalogues(self, request: Request) -> Response:
        """List the catalogues that the client may use."""
        visitor = self.services.access.identify(request)
        names = await self.services.edge.catalogues()
        return json_response({"catalogues": [{"name": name} for name in names if visitor.sees(name)]})

    async def healthz(self, request: Request) -> Response:
        """Report that this process runs."""
        del request
        return json_response({"alive": True})

    async def readyz(self, request: Request) -> Response:
        """Report whether the edge is ready."""
        del request
        await self.services.edge.check_health(_HEALTH_TIMEOUT_S)
        return json_response({"ready": True})

    async def openapi(self, request: Request) -> Response:
        """Return the description of the HTTP interface."""
        del request
        return json_response(openapi_document())

    def _counted(self, name: str, handler: Handler) -> Handler:
        """A handler that counts responses, and converts errors to responses."""
        requests = self.services.metrics.requests

        async def endpoint(request: Request) -> Response:
            try:
                response = await handler(request)
            except NearsightError as error:
                requests.labels(name, error.code.name).inc()
                return error_response(error)
            except asyncio.CancelledError:
                stopping = Unavailable("the gateway is stopping", advice="try again in a moment")
                requests.labels(name, stopping.code.name).inc()
                return error_response(stopping)
            requests.labels(name, "OK").inc()
            return response

        return endpoint


def build_app(services: GatewayServices, streams: Streams, cors_origins: Sequence[str]) -> Starlette:
    """Create the application: HTTP routes and streams."""
    middleware = [Middleware(_WithHeaders)]
    if cors_origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(cors_origins),
                allow_methods=["GET", "POST"],
                allow_headers=["Authorization", "Content-Type"],
                expose_headers=["Retry-After"],
            )
        )
    app = Starlette(
        routes=[
            WebSocketRoute("/v1/catalogues/{name}/stream", streams.serve),
            WebSocketRoute("/{path:path}", _no_stream),
            *Api(services).routes(),
        ],
        middleware=middleware,
        exception_handlers={HTTPException: _no_route, Exception: _unexpected},
    )
    # A redirect would contain a wrong address behind a proxy, which may change scheme, port and path.
    app.router.redirect_slashes = False
    return app


async def _no_route(request: Request, error: Exception) -> Response:
    """Convert errors of the router to the format of all errors."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        response = error_response(InvalidArgument(f"this address does not support {request.method}"))
        response.status_code = 405
        response.headers.update(error.headers or {})
        return response
    return error_response(_not_found())


async def _no_stream(websocket: WebSocket) -> None:
    """Reject a WebSocket with a complete response; the default would be an empty 403."""
    await websocket.send_denial_response(error_response(_not_found()))


def _not_found() -> NotFound:
    return NotFound("there is nothing at this address", advice="see /openapi.json and docs/gateway.md")


async def _unexpected(request: Request, error: Exception) -> Response:
    """Respond to an unexpected exception, which Starlette raises again for the log."""
    del request, error
    return error_response(InternalError("the request failed inside the gateway", advice="see its log"))


class _WithHeaders:
    """Middleware that adds headers to each HTTP response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)
