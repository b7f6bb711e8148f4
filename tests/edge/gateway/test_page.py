"""The visitor's page in Chromium before a scripted gateway: every state of the page."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.system, pytest.mark.needs("chromium")]
pytest.importorskip("playwright")
from playwright.sync_api import Browser, expect  # noqa: E402

from support.browsers import (  # noqa: E402
    DESKTOP,
    ORIGIN,
    PHONE,
    UNKNOWN,
    Visit,
    answer,
    failure,
    photo,
    until,
)

expect.set_options(timeout=100_000)


def test_a_known_exhibit_has_its_label_its_metadata_and_an_outline(visit: Visit) -> None:
    visit.reads("Point the camera at an exhibit")
    visit.start(answer())
    visit.reads("Night", "90 % sure, answered by the edge in 12 ms")
    expect(visit.page.get_by_role("term")).to_have_text(["artist", "year"])
    expect(visit.page.get_by_role("definition")).to_have_text(["Ada Brandvik", "1947"])
    expect(visit.outline).to_be_visible()
    visit.hears("Night")
    assert visit.errors == []


def test_an_exhibit_without_a_label_is_named_by_its_id(visit: Visit) -> None:
    visit.start(answer(label="", metadata={}))
    visit.reads("0042")
    visit.hears("0042")
    expect(visit.page.get_by_role("term")).to_have_count(0)


def test_nothing_is_loaded_from_anywhere_but_the_gateway(visit: Visit) -> None:
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url))
    visit.page.reload()
    visit.start(answer())
    visit.reads("Night")
    visit.choose(photo(64, 48))
    expect(visit.page.get_by_role("img", name="Your photo")).to_be_visible()
    assert f"{ORIGIN}/nearsight.js" in asked
    assert [url for url in asked if not url.startswith((f"{ORIGIN}/", f"blob:{ORIGIN}/"))] == []


@pytest.mark.parametrize(
    "hostile", ["<img src=x onerror=document.title='hit'>", "\x1b]0;hit\x07", "<b>a&amp;</b>"]
)
def test_a_label_with_markup_is_shown_as_the_text_that_it_is(visit: Visit, hostile: str) -> None:
    visit.start(answer(hostile, object_id=hostile, metadata={hostile: hostile}))
    expect(visit.page.get_by_role("heading", level=2)).to_have_js_property("textContent", hostile)
    expect(visit.page.get_by_role("definition")).to_have_js_property("textContent", hostile)
    expect(visit.page.get_by_role("status")).to_have_js_property("textContent", hostile)
    assert visit.page.locator("#panel img, #panel b, #announcement *").count() == 0
    assert "hit" not in visit.page.title()


def test_unknown_is_shown_after_several_frames_and_one_lost_frame_is_ignored(visit: Visit) -> None:
    visit.start()
    until(visit.page, lambda: len(visit.gateway.connections) == 1, "the connection")
    connection = visit.gateway.connections[0]
    connection.ready()
    visit.reads("Looking …")

    def reply(*bodies: dict[str, Any]) -> None:
        for body in bodies:
            number = len(replied)
            until(visit.page, lambda: len(connection.frames) > number, "a frame")  # noqa: B023
            replied.append(body)
            connection.answers(number, body)

    replied: list[dict[str, Any]] = []
    reply(answer(), UNKNOWN)
    expect(visit.outline).to_be_hidden()
    reply(failure("DEADLINE_EXCEEDED"), UNKNOWN, UNKNOWN)
    visit.reads("Night")
    reply(UNKNOWN)
    visit.reads("No known exhibit")


def test_screen_readers_receive_each_label_once_and_states_once_per_start(visit: Visit) -> None:
    visit.listen()
    visit.start(answer())
    for always, headline in [
        (answer(), "Night"),
        (UNKNOWN, "No known exhibit"),
        (answer(), "Night"),
        (UNKNOWN, "No known exhibit"),
        (answer("Day", object_id="0043"), "Day"),
        (failure("UNAVAILABLE"), "The museum's server is unavailable"),
        (answer("Day", object_id="0043"), "Day"),
    ]:
        visit.gateway.always = always
        visit.reads(headline)
    assert visit.heard() == [
        "Starting the camera …",
        "Connecting …",
        "Looking …",
        "Night",
        "No known exhibit",
        "Day",
        "The museum's server is unavailable",
        "Day",
    ]
    assert visit.page.get_by_role("status").get_attribute("aria-live") in (None, "polite")


def test_a_photo_is_shown_with_its_outline_and_ends_the_camera(visit: Visit) -> None:
    visit.start(UNKNOWN)
    visit.reads("No known exhibit")
    visit.gateway.replies = [(200, answer(corners=[[0, 0], [640, 0], [640, 480], [0, 480]]))]
    visit.choose(photo(1200, 900))
    visit.reads("Night")
    expect(visit.button("Start camera")).to_be_visible()
    expect(visit.page.locator("video")).to_be_hidden()
    shown = visit.page.get_by_role("img", name="Your photo").bounding_box()
    drawn = visit.page.locator("#overlay polygon").last.bounding_box()
    assert shown and drawn
    # The photo keeps its shape within its box; the outline is around all of it, and its line 4 px wide.
    height = shown["width"] * 3 / 4
    top = shown["y"] + (shown["height"] - height) / 2
    around = [drawn["x"] + 2, drawn["y"] + 2, drawn["width"] - 4, drawn["height"] - 4]
    np.testing.assert_allclose(around, [shown["x"], top, shown["width"], height], atol=1)


@pytest.mark.parametrize(
    ("reply", "headline", "text"),
    [
        ((200, UNKNOWN), "No known exhibit in this photo", "nearer"),
        ((503, failure("UNAVAILABLE")), "The museum's server is unavailable", "Choose the photo again"),
        ((401, failure("UNAUTHENTICATED")), "This page has no access", "QR code"),
        ((429, failure("OVERLOADED")), "The museum's server is busy", "Choose the photo again"),
        ((413, failure("INVALID_ARGUMENT", "too large", "send less")), "No answer", "Too large; send less."),
    ],
)
def test_a_photo_without_an_answer_has_a_sentence(
    visit: Visit, reply: tuple[int, dict[str, Any]], headline: str, text: str
) -> None:
    visit.gateway.replies = [reply]
    visit.choose(photo(64, 48))
    visit.reads(headline, text)
    expect(visit.outline).to_be_hidden()


def test_a_photo_that_is_given_up_for_the_camera_has_no_sentence(visit: Visit) -> None:
    visit.listen()
    visit.gateway.replies = [None]
    visit.choose(photo(64, 48))
    visit.hears("Looking at the photo …. This takes a moment.")
    visit.start(answer())
    visit.reads("Night")
    assert visit.heard() == [
        "Looking at the photo …",
        "Starting the camera …",
        "Connecting …",
        "Looking …",
        "Night",
    ]


def test_a_file_that_is_no_photo_has_a_sentence_and_the_same_file_may_be_chosen_again(visit: Visit) -> None:
    file = {"name": "a.txt", "mimeType": "text/plain", "buffer": b"text"}
    for message in ("this is no image", "this is none either"):
        visit.gateway.replies = [(400, failure("INVALID_ARGUMENT", message, "send a photo"))]
        visit.choose(file)
        visit.reads("No answer", f"{message[0].upper()}{message[1:]}; send a photo.")
    expect(visit.page.locator("#photo")).to_be_hidden()


def test_the_page_works_with_the_keyboard_only(visit: Visit) -> None:
    visit.gateway.always = answer()
    keyboard, focused = visit.page.keyboard, visit.page.locator(":focus")
    keyboard.press("Tab")  # the answer, which may be longer than its place
    expect(focused).to_have_attribute("id", "answer")
    keyboard.press("Tab")
    expect(focused).to_have_text("Start camera")
    keyboard.press("Enter")
    visit.reads("Night")
    expect(focused).to_have_text("Stop camera")
    keyboard.press("Space")
    visit.reads("Point the camera at an exhibit")
    keyboard.press("Tab")
    with visit.page.expect_file_chooser() as chooser:
        keyboard.press("Enter")
    visit.gateway.replies = [(200, answer("Day", object_id="0043"))]
    chooser.value.set_files([photo(64, 48)])
    visit.reads("Day")


def test_an_outline_without_a_new_answer_disappears_before_the_label(visit: Visit) -> None:
    visit.start(answer())
    visit.reads("Night")
    expect(visit.outline).to_be_visible()
    visit.page.evaluate(
        """() => {
            const overlay = document.getElementById("overlay");
            new MutationObserver(() => { globalThis.label = document.querySelector("h2").textContent; })
                .observe(overlay, {attributes: true, attributeFilter: ["hidden"]});
        }"""
    )
    visit.gateway.always = None
    until(visit.page, lambda: visit.page.evaluate("globalThis.label") == "Night", "an outline that goes away")


def test_of_several_catalogues_the_visitor_chooses_one(chromium_of_module: Browser, stack: ExitStack) -> None:
    visit = Visit(chromium_of_module, stack)
    expect(visit.page.get_by_label("Collection")).to_be_hidden()
    visit.gateway.replies = [(200, {"catalogues": [{"name": "east"}, {"name": "west"}]})]
    visit.page.reload()
    visit.start(answer())
    visit.reads("Night")
    assert "/catalogues/east/" in visit.gateway.connections[-1].route.url
    visit.page.get_by_label("Collection").select_option("west")
    until(visit.page, lambda: "/catalogues/west/" in visit.gateway.connections[-1].route.url, "the other one")


def test_the_visitor_chooses_once_an_edge_that_was_away_lists_its_catalogues(visit: Visit) -> None:
    away = (503, failure("UNAVAILABLE"))
    visit.gateway.replies = [away] * 1000
    visit.page.reload()
    visit.start(answer())
    visit.reads("The museum's server is unavailable")
    visit.gateway.replies = [(200, {"catalogues": [{"name": "east"}, {"name": "west"}]})] * 1000
    visit.reads("Night")
    assert "/catalogues/east/" in visit.gateway.connections[-1].route.url
    expect(visit.page.get_by_label("Collection")).to_be_visible()


def test_a_late_listing_does_not_replace_the_catalogue_that_the_visitor_chose(visit: Visit) -> None:
    visit.gateway.replies = [None, (200, {"catalogues": [{"name": "east"}, {"name": "west"}]})]
    visit.page.reload()
    until(visit.page, lambda: len(visit.gateway.requests) == 2, "the first listing, which is late")
    late = visit.gateway.requests[1]
    visit.start(answer())
    visit.page.get_by_label("Collection").select_option("west")
    with visit.page.expect_event("requestfailed"):
        late.abort()
    visit.gateway.replies = [(200, answer())]
    visit.choose(photo(64, 48))
    until(visit.page, lambda: visit.gateway.requests[-1].request.method == "POST", "the photo")
    assert "/catalogues/west/" in visit.gateway.requests[-1].request.url


def test_another_reason_replaces_the_former(visit: Visit) -> None:
    for message in ("first reason", "second reason"):
        visit.page.evaluate(
            """async (message) => {
                const { Panel } = await import("/panel.js");
                new Panel().showError({code: "INTERNAL", message, advice: "try again"}, "");
            }""",
            message,
        )
        visit.reads("No answer", f"{message.capitalize()}; try again.")
        visit.hears(f"No answer. {message.capitalize()}; try again.")


@pytest.mark.parametrize(("motion", "glides"), [("reduce", False), ("no-preference", True)])
def test_outlines_are_animated_unless_reduced_motion_is_preferred(
    chromium_of_module: Browser, stack: ExitStack, motion: str, glides: bool
) -> None:
    page = Visit(chromium_of_module, stack, reduced_motion=motion).page
    drawn = page.evaluate(
        """async () => {
            const { Outline } = await import("/outline.js");
            const overlay = document.getElementById("overlay");
            const line = overlay.lastElementChild;
            const outline = new Outline(overlay);
            const drawn = [];
            const show = (corners) => new Promise((done) => {
                new MutationObserver(() => {
                    drawn.push(line.getAttribute("points"));
                    if (drawn.at(-1) === corners.join(" ")) done();
                }).observe(line, {attributes: true});
                outline.show(corners, 640, 480, false);
            });
            await show([[10, 20], [90, 20], [90, 80], [10, 80]]);
            drawn.length = 0;
            await show([[100, 200], [300, 200], [300, 400], [100, 400]]);
            return drawn;
        }"""
    )
    assert drawn[-1] == "100,200 300,200 300,400 100,400"
    assert (len(set(drawn)) > 1) == glides


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_accessibility_errors(
    chromium_of_module: Browser, stack: ExitStack, size: dict[str, int], scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    visit = Visit(chromium_of_module, stack, viewport=size, color_scheme=scheme)

    def check() -> None:
        found = axe.run(visit.page)
        assert found.violations_count == 0, found.generate_report()

    check()
    visit.start(answer(metadata={f"property {number}": "a long value " * 5 for number in range(12)}))
    visit.reads("Night")
    check()
    visit.gateway.always = UNKNOWN
    visit.reads("No known exhibit")
    visit.gateway.connections[0].route.close(code=1008)
    visit.reads("This page has no access")
    check()
    visit.gateway.replies = [(200, answer())]
    visit.choose(photo(64, 48))
    visit.reads("Night")
    check()


@pytest.mark.parametrize(
    "size", [PHONE, DESKTOP, {"width": 320, "height": 480}, {"width": 844, "height": 390}]
)
def test_the_page_fits_the_window_and_buttons_are_large_enough(
    chromium_of_module: Browser, stack: ExitStack, size: dict[str, int]
) -> None:
    visit = Visit(chromium_of_module, stack, viewport=size)
    visit.start(answer("A very long label of an exhibit " * 6, metadata={"note": "word" * 60}))
    expect(visit.page.get_by_role("term")).to_be_attached()
    width, height = visit.page.evaluate("[document.body.scrollWidth, document.documentElement.scrollHeight]")
    assert (width, height) == (size["width"], size["height"])
    for name in ("Stop camera", "Choose photo"):
        box = visit.button(name).bounding_box()
        assert box and box["height"] >= 44 and box["width"] >= 44
        assert box["y"] >= size["height"] / 2, "within reach of a thumb"
        assert box["y"] + box["height"] <= size["height"]
