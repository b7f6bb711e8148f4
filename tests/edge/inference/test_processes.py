"""Networks with real daemons as processes, one of which is killed."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from nearsight import Recognizer
from nearsight.__main__ import main
from support.daemon_process import daemon_process
from support.networks import COLOURS, colour_network, photo_of
from support.recognizers import PATIENT
from support.waiting import wait_until


@pytest.mark.system
def test_an_edge_that_was_killed_serves_its_networks_again_without_the_cloud(
    tmp_path: Path, stack: ExitStack
) -> None:
    (tmp_path / "labels.txt").write_text("\n".join(COLOURS))
    source = str(colour_network(tmp_path / "colours.onnx", weights_mb=8))
    folder = str(tmp_path / "models")
    assert main(["models", "add", source, "--labels", str(tmp_path / "labels.txt"), "--folder", folder]) == 0
    cloud = stack.enter_context(daemon_process(tmp_path, "cloud", "--create"))
    edge = stack.enter_context(daemon_process(tmp_path, "edge", "--cloud", cloud.endpoint))

    def answers(endpoint: str, tier: str) -> None:
        with Recognizer(endpoint, None, "colours", settings=PATIENT) as recognizer:
            wait_until(
                lambda: recognizer.recognize_blocking(photo_of("green")).answered_by == tier,
                what=f"an answer of the {tier}",
            )
            answer = recognizer.recognize_blocking(photo_of("red"))
            assert (answer.label, answer.answered_by) == ("red", tier)

    answers(edge.endpoint, "edge")
    edge.kill()
    cloud.kill()
    edge = stack.enter_context(daemon_process(tmp_path, "edge", "--cloud", cloud.endpoint))
    answers(edge.endpoint, "edge")
