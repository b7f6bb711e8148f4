"""Reports about a photo: the parts of the latency add up, and text and JSON are complete."""

import json

import pytest

from nearsight.common.errors import StatusCode, Unavailable
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.rpc.client import Hop
from nearsight.device.recognition import Attempt, Recognition
from nearsight.device.report import json_report, latency_split, text_report

FOUND = RecognizedObject(
    "0042", "Night", 1, 0.93, 40, ((1, 2), (30, 2), (30, 40), (1, 40)), {"artist": "R.", "year": "1642"}
)
THROUGH_THE_EDGE = Recognition(
    FOUND,
    "cloud",
    latency_ms=105.0,
    hops=(
        Hop("cloud", 1.0, 19.0, 0.0, 40_000, 300),
        Hop("edge", 2.0, 8.0, 50.0, 60_000, 300),
        Hop("device", 1.0, 4.0, 100.0, 300, 60_000),
    ),
    attempts=(Attempt("edge", StatusCode.OK, 100.0),),
    trace_id="abc",
    sent_bytes=60_000,
    received_bytes=300,
)


def test_the_latency_is_split_over_tiers_and_networks() -> None:
    split = latency_split(THROUGH_THE_EDGE)
    assert split == pytest.approx(
        {"device": 5.0, "network device-edge": 40.0, "edge": 10.0, "network edge-cloud": 30.0, "cloud": 20.0}
    )
    assert sum(split.values()) == pytest.approx(THROUGH_THE_EDGE.latency_ms)


def test_time_that_an_edge_lost_on_a_cloud_that_is_away_is_shown() -> None:
    hops = (Hop("edge", 1.0, 19.0, 600.0, 1, 1), Hop("device", 1.0, 4.0, 630.0, 1, 1))
    attempts = (Attempt("edge", StatusCode.OK, 630.0),)
    split = latency_split(Recognition(None, "edge", latency_ms=635.0, hops=hops, attempts=attempts))
    assert split["failed calls behind the edge"] == 600.0
    assert sum(split.values()) == pytest.approx(635.0)


def test_time_lost_on_a_tier_that_failed_is_shown() -> None:
    recognition = Recognition(
        None,
        "cloud",
        latency_ms=165.0,
        hops=(Hop("cloud", 1.0, 19.0, 0.0, 1, 1), Hop("device", 1.0, 4.0, 160.0, 1, 1)),
        attempts=(Attempt("edge", StatusCode.UNAVAILABLE, 100.0), Attempt("cloud", StatusCode.OK, 60.0)),
    )
    split = latency_split(recognition)
    assert split == pytest.approx(
        {"device": 5.0, "edge failed": 100.0, "network device-cloud": 40.0, "cloud": 20.0}
    )
    assert sum(split.values()) == pytest.approx(165.0)


def test_the_text_is_complete() -> None:
    text = "\n".join(text_report("photo.jpg", THROUGH_THE_EDGE))
    for part in (
        "photo.jpg",
        "Night",
        "0042",
        "93 %",
        "artist: R.",
        "year: 1642",
        "cloud",
        "105.0 ms",
        "60.0 KB",
    ):
        assert part in text
    unknown, *_ = text_report("photo.jpg", Recognition(None, "edge", 1.0, hops=THROUGH_THE_EDGE.hops[2:]))
    assert unknown == "photo.jpg: unknown"


def test_the_json_of_an_answer_and_of_an_error() -> None:
    answer = json.loads(json.dumps(json_report("photo.jpg", THROUGH_THE_EDGE)))
    assert answer["object_id"] == "0042"
    assert answer["attempts"] == [{"tier": "edge", "outcome": "OK", "elapsed_ms": 100.0}]
    assert [hop["tier"] for hop in answer["hops"]] == ["cloud", "edge", "device"]
    error = json_report("photo.jpg", Unavailable("gone", advice="start it"))
    assert error == {"photo": "photo.jpg", "error": "gone", "advice": "start it", "code": "UNAVAILABLE"}
