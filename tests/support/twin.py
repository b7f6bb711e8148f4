"""Sessions of the twin with visitors in a museum of 60 objects."""

import numpy as np

from nearsight.experiments.links.link import TABLE_6_3, LinkShape
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.twin.cost_model import CostModel, Hardware
from nearsight.experiments.twin.photos import PhotoMaker
from nearsight.experiments.twin.session import TwinSession
from nearsight.experiments.twin.visitors import generate_visitors

OBJECT_IDS = [f"{number + 1:04d}" for number in range(60)]


def crowd(
    following: Following,
    hardware: Hardware | None = None,
    network: LinkShape = TABLE_6_3["Medium"],
    *,
    earlier: int = 30,
    costs: CostModel | None = None,
) -> TwinSession:
    """A session whose devices follow the walks of ``earlier`` visitors."""
    rng = np.random.default_rng(1)
    maker = PhotoMaker(((200, 0.8), (800, 0.95)), 0.99, (30_000.0, 0.3), rng)
    visitors, transitions = generate_visitors(
        maker, OBJECT_IDS, following, sections=1, crowd_size=earlier, rng=rng
    )
    costs = costs or CostModel.assumed()
    return TwinSession(OBJECT_IDS, visitors, costs, network, transitions, hardware=hardware or Hardware())
