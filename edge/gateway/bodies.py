"""The image in an HTTP request: the body itself, or a field of a form; limited in size and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from nearsight.common.errors import Cancelled, ImageTooLarge, InvalidArgument, InvalidImage
from nearsight.edge.gateway.errors import TooSlow
from nearsight.edge.gateway.settings import LimitSettings

FIELD = "image"
"""Name of the field in a form."""
IMAGE_TYPES = ("image/jpeg", "image/png", "image/webp", "application/octet-stream")
FORM = "multipart/form-data"


async def image_of(request: Request, limits: LimitSettings, hold: Callable[[int], None]) -> bytes:
    """Read the image of a request.

    Parameters
    ----------
    request : Request
        Request whose body is not read yet.
    limits : LimitSettings
        Limits of size and time.
    hold : callable
        Counts the received bytes; see `Access.holding`.

    Raises
    ------
    ImageTooLarge
        If the received or declared size of the body exceeds the limit.
    InvalidArgument
        If the body has an unsupported type or encoding, or the form has no image.
    TooSlow
        If the body does not arrive in time.
    Cancelled
        If the client disconnects.
    """
    kind = request.headers.get("content-type", IMAGE_TYPES[-1]).partition(";")[0].strip().lower()
    if kind not in (*IMAGE_TYPES, FORM):
        raise InvalidArgument(
            f"a body of type {kind!r} is not an image",
            advice=f"send {', '.join(IMAGE_TYPES)}, or {FORM} with a field {FIELD!r}",
        )
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise InvalidArgument(
            f"a body with Content-Encoding {coding!r} is not supported",
            advice="send the image file without it: image files are compressed already",
        )
    declared = request.headers.get("content-length", "0")
    _check_size(int(declared) if declared.isdecimal() else 0, limits)
    chunks = _chunks(request, limits, hold)
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            if kind == FORM:
                image = await _of_form(request, chunks)
            else:
                image = b"".join([chunk async for chunk in chunks])
    except TimeoutError as error:
        raise TooSlow(
            f"the request did not arrive within {limits.body_timeout_s:g} s", advice="send a smaller image"
        ) from error
    except ClientDisconnect as error:
        raise Cancelled("the client disconnected") from error
    if not image:
        raise InvalidImage("the image is empty", advice="send a JPEG, PNG or WebP file")
    return image


def _check_size(size_bytes: int, limits: LimitSettings) -> None:
    if size_bytes > limits.max_bytes:
        raise ImageTooLarge(
            f"the request has more than {limits.max_bytes} bytes", advice="send a smaller image"
        )


async def _chunks(
    request: Request, limits: LimitSettings, hold: Callable[[int], None]
) -> AsyncGenerator[bytes, None]:
    size_bytes = 0
    async for chunk in request.stream():
        size_bytes += len(chunk)
        _check_size(size_bytes, limits)
        hold(len(chunk))
        yield chunk


class _Parser(MultiPartParser):
    spool_max_size = 1 << 62  # keeps files in memory, because their size is already limited


async def _of_form(request: Request, chunks: AsyncGenerator[bytes, None]) -> bytes:
    try:
        form = await _Parser(request.headers, chunks, max_files=1, max_fields=8).parse()
    except (MultiPartException, KeyError) as error:
        raise InvalidArgument(
            f"the form cannot be read: {error}", advice="send multipart/form-data"
        ) from error
    try:
        field = form.get(FIELD)
        if not isinstance(field, UploadFile):
            raise InvalidArgument(
                f"the form has no file called {FIELD!r}", advice=f"curl -F {FIELD}=@photo.jpg"
            )
        return await field.read()
    finally:
        await form.close()
