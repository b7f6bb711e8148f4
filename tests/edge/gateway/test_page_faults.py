"""The visitor's page in Chromium where the camera, the network, the gateway or a token fails."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

pytestmark = [pytest.mark.system, pytest.mark.needs("chromium")]
pytest.importorskip("playwright")
from playwright.sync_api import Browser, expect  # noqa: E402

from support.browsers import (  # noqa: E402
    ORIGIN,
    Visit,
    answer,
    photo,
    until,
)

expect.set_options(timeout=100_000)


def test_a_refused_camera_has_a_next_step_and_can_be_allowed_later(
    chromium_of_module: Browser, stack: ExitStack
) -> None:
    visit = Visit(chromium_of_module, stack, camera=False)
    visit.start(answer())
    visit.reads("The camera is not allowed", "or choose a photo")
    visit.context.grant_permissions(["camera"])
    visit.button("Start camera").click()
    visit.reads("Night")


@pytest.mark.parametrize(
    ("name", "headline"),
    [("NotFoundError", "No camera was found"), ("NotReadableError", "The camera does not start")],
)
def test_a_camera_that_does_not_start_has_a_sentence(visit: Visit, name: str, headline: str) -> None:
    visit.page.evaluate(
        "name => { MediaDevices.prototype.getUserMedia = () => Promise.reject(new DOMException('', name)); }",
        name,
    )
    visit.start()
    visit.reads(headline, "or choose a photo")


def test_without_https_the_page_explains_it_and_accepts_photos(
    chromium_of_module: Browser, stack: ExitStack
) -> None:
    visit = Visit(chromium_of_module, stack, origin="http://museum.test")
    visit.start()
    visit.reads("The camera needs https", "or choose a photo")
    visit.gateway.replies = [(200, answer())]
    visit.choose(photo(64, 48))
    visit.reads("Night")


def test_an_unplugged_camera_ends_the_stream_with_a_sentence(visit: Visit) -> None:
    visit.start(answer())
    visit.reads("Night")
    visit.page.evaluate("document.querySelector('video').srcObject.getTracks()[0].stop()")
    visit.reads("The camera was disconnected", "start it again")
    expect(visit.outline).to_be_hidden()
    expect(visit.button("Start camera")).to_be_visible()
    until(visit.page, lambda: visit.gateway.connections[0].closed, "the end of the connection")


@pytest.mark.parametrize("by", ["Stop camera", "Choose photo"])
def test_a_camera_that_is_stopped_is_let_go(visit: Visit, by: str) -> None:
    visit.start(answer())
    visit.reads("Night")
    track = visit.page.evaluate_handle("document.querySelector('video').srcObject.getTracks()[0]")
    if by == "Choose photo":
        visit.choose(photo(64, 48))
    else:
        visit.button(by).click()
    visit.page.wait_for_function("track => track.readyState === 'ended'", arg=track)
    assert visit.outline.is_hidden()  # not only when its time is over
    until(visit.page, lambda: visit.gateway.connections[0].closed, "the end of the connection")


def test_a_camera_that_opens_after_stop_is_closed(visit: Visit) -> None:
    visit.page.evaluate(
        """() => {
            const { mediaDevices } = navigator;
            const real = mediaDevices.getUserMedia.bind(mediaDevices);
            const asked = Promise.withResolvers();
            mediaDevices.getUserMedia = async (wanted) => {
                const media = await real(wanted);
                globalThis.track = media.getTracks()[0];
                await asked.promise;
                return media;
            };
            globalThis.allow = asked.resolve;
        }"""
    )
    visit.start(answer())
    visit.page.wait_for_function("globalThis.track")
    visit.button("Stop camera").click()
    visit.page.evaluate("allow()")
    visit.page.wait_for_function("track.readyState === 'ended'")
    visit.reads("Point the camera at an exhibit")
    assert visit.gateway.connections == []


def test_a_camera_that_is_refused_after_it_was_stopped_has_no_sentence(visit: Visit) -> None:
    visit.page.evaluate(
        """() => {
            const asked = Promise.withResolvers();
            MediaDevices.prototype.getUserMedia = () => asked.promise;
            globalThis.refuse = () => asked.reject(new DOMException("", "NotAllowedError"));
        }"""
    )
    visit.start()
    visit.button("Stop camera").click()
    visit.page.evaluate("refuse()")
    assert visit.page.get_by_role("heading", level=2).text_content() == "Point the camera at an exhibit"


def test_the_page_shows_that_it_is_offline_and_resumes_automatically(visit: Visit) -> None:
    visit.start(answer())
    visit.reads("Night")
    visit.context.set_offline(True)
    visit.reads("You are offline", "continues by itself")
    expect(visit.outline).to_be_hidden()
    visit.context.set_offline(False)
    visit.reads("Night")


def test_a_refused_token_ends_the_camera(visit: Visit) -> None:
    visit.start(answer())
    visit.reads("Night")
    visit.gateway.connections[0].route.close(code=1008)
    visit.reads("This page has no access", "QR code")
    expect(visit.button("Start camera")).to_be_visible()


def test_the_token_of_the_link_leaves_the_address_and_travels_with_each_request(
    chromium_of_module: Browser, stack: ExitStack
) -> None:
    visit = Visit(chromium_of_module, stack, address="/?catalogue=museum#token=se-cret_1")
    assert visit.page.url == f"{ORIGIN}/?catalogue=museum"
    visit.page.reload()
    visit.choose(photo(64, 48))
    until(visit.page, lambda: len(visit.gateway.requests) == 1, "the question")
    assert visit.gateway.requests[0].request.headers["authorization"] == "Bearer se-cret_1"
    assert "se-cret_1" not in visit.page.evaluate("JSON.stringify(localStorage) + document.cookie")
    visit.page.evaluate("location.hash = 'token=other'")  # another code is scanned in the same tab
    visit.page.wait_for_url(f"{ORIGIN}/?catalogue=museum")
    assert visit.page.evaluate("sessionStorage.token") == "other"
