"""The HTTP routes of a gateway, over real sockets."""

from support.gateway import CATALOGUE, OTHER, Browser, ScriptedEdge
from support.recognition_server import CORNERS, response

IMAGE = b"an image, as far as the scripted edge is concerned"


def test_a_photo_receives_the_answer_of_the_edge(browser: Browser, edge: ScriptedEdge) -> None:
    reply = browser.recognize(IMAGE)
    assert reply.status == 200
    answer = reply.json
    assert (answer["known"], answer["object_id"], answer["label"]) == (True, "0042", "Night")
    assert (answer["metadata"], answer["confidence"]) == ({"artist": "R."}, 0.9)
    assert answer["corners"] == [list(corner) for corner in CORNERS]
    assert (answer["answered_by"], answer["grain"]) == ("edge", "object")
    assert answer["latency_ms"] > 0
    assert [hop["tier"] for hop in answer["hops"]] == ["edge"]
    (context,) = edge.recognition.contexts
    assert (context.catalogue, bytes(context.blobs[0])) == (CATALOGUE, IMAGE)
    assert context.trace_id == answer["trace_id"]
    assert context.client_id == "gateway/127.0.0.1"


def test_an_unknown_photo_is_answered_with_the_same_fields(browser: Browser, edge: ScriptedEdge) -> None:
    known = browser.recognize(IMAGE).json
    edge.recognition.answer = lambda: response("cloud", None)
    unknown = browser.recognize(IMAGE).json
    assert unknown.keys() == known.keys()
    assert (unknown["known"], unknown["object_id"], unknown["corners"]) == (False, None, None)
    assert unknown["answered_by"] == "cloud"


def test_a_form_with_the_field_image_is_a_photo(browser: Browser, edge: ScriptedEdge) -> None:
    form = b"\r\n".join(
        (
            b"--line",
            b'Content-Disposition: form-data; name="image"; filename="photo.jpg"',
            b"Content-Type: image/jpeg",
            b"",
            IMAGE,
            b"--line--",
            b"",
        )
    )
    reply = browser.recognize(form, content_type="multipart/form-data; boundary=line")
    assert reply.json["known"]
    assert bytes(edge.recognition.contexts[0].blobs[0]) == IMAGE


def test_catalogues_of_the_edge_are_listed(browser: Browser) -> None:
    assert browser.get("/v1/catalogues").json == {"catalogues": [{"name": OTHER}, {"name": CATALOGUE}]}


def test_a_gateway_lives_and_is_ready(browser: Browser) -> None:
    assert browser.get("/healthz").status == 200
    assert browser.get("/readyz").json["ready"] is True


def test_the_page_is_served_with_a_strict_policy(browser: Browser) -> None:
    page = browser.get("/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert browser.get("/", if_none_match=page.headers["etag"]).status == 304


def test_frames_of_a_stream_are_answered_one_by_one(browser: Browser, edge: ScriptedEdge) -> None:
    with browser.stream() as stream:
        assert stream.read() == {"type": "ready", "credits": 3, "max_bytes": 2**20}
        stream.send(7, IMAGE)
        answer = stream.read()
        stream.send(8, IMAGE)
        assert (answer["type"], answer["frame"], answer["label"]) == ("answer", 7, "Night")
        assert stream.read()["frame"] == 8
    first, second = edge.recognition.contexts
    assert first.client_id == second.client_id
    assert edge.recognition.requests[0].image.one_look
