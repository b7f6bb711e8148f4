"""The edge of the twin."""

import numpy as np

from nearsight.common.errors import DeadlineExceeded, NearsightError
from nearsight.common.rpc.settings import ServerSettings
from nearsight.edge.settings import EdgeSettings
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.twin.cloud import TwinCloud, TwinCloudClient
from nearsight.experiments.twin.cost_model import CostModel, Costs
from nearsight.experiments.twin.edge import TwinEdge
from nearsight.experiments.twin.events import EventQueue
from nearsight.experiments.twin.link import Reply, TierRequest, TwinLink
from nearsight.experiments.twin.photos import TwinPhoto, twin_model
from nearsight.experiments.twin.processor import Processor


def edge_over(events: EventQueue, network: LinkShape) -> TwinEdge:
    rng = np.random.default_rng(1)
    costs, processor = Costs(CostModel.assumed(), 1, rng), Processor(events, 2)
    cloud = TwinCloud(processor, {"0001": twin_model("0001", 1000)}, costs, ServerSettings())
    client = TwinCloudClient(cloud, TwinLink(events, network, rng), 0.0, costs)
    return TwinEdge(processor, client, costs, EdgeSettings())


def answers_to_a_photo(edge: TwinEdge, events: EventQueue, deadline_s: float) -> list[Reply | NearsightError]:
    photo = TwinPhoto("0001", 30_000, 200.0, at_second_look=True)
    answers = list[Reply | NearsightError]()
    edge.recognize("ann", TierRequest(photo, True, 30_000), deadline_s, answers.append)
    events.run(60.0)
    return answers


def test_an_edge_learns_from_an_answer_of_the_cloud() -> None:
    events = EventQueue()
    edge = edge_over(events, LinkShape(rtt_ms=20.0))
    (answer,) = answers_to_a_photo(edge, events, 5.0)
    assert isinstance(answer, Reply)
    assert edge.cache.misses == 1


def test_an_edge_learns_nothing_from_an_answer_after_the_deadline() -> None:
    events = EventQueue()
    edge = edge_over(events, LinkShape(up_mbps=8e-3))  # 30 s for a photo
    (answer,) = answers_to_a_photo(edge, events, 5.0)
    assert isinstance(answer, DeadlineExceeded)
    assert edge.cache.misses == 0
