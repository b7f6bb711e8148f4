"""Fetching models: order of requests, and late or empty answers."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import pytest

from nearsight.common.catalogue.answers import FetchedModels
from nearsight.common.catalogue.model_fetcher import ModelFetcher
from nearsight.common.clock import ManualClock
from nearsight.common.errors import Unavailable
from support.manual_background import ManualBackground
from support.objects import random_model


@dataclass(frozen=True)
class Limits:
    batch: int = 2
    parallel: int = 1
    timeout_s: float = 20.0


class Scene:
    """A fetcher whose source and time a test controls."""

    def __init__(self) -> None:
        clock = ManualClock(100.0)
        self.background = ManualBackground(clock)
        self.asked: list[tuple[str, ...]] = []
        self.answers: list[Future[FetchedModels]] = []
        self.came: list[str] = []
        self.fetcher = ModelFetcher(
            "museum", self, self.background, Limits(), clock, self._arrived, lambda _: None, overtake=True
        )

    def get_models(
        self, catalogue: str, object_ids: Sequence[str], timeout_s: float
    ) -> Future[FetchedModels]:
        del catalogue, timeout_s
        self.asked.append(tuple(object_ids))
        self.answers.append(Future())
        return self.answers[-1]

    def _arrived(self, fetched: FetchedModels) -> list[str]:
        self.came += [model.object_id for model in fetched.models]
        return []

    def answer(self, number: int, *names: str, left_out: tuple[str, ...] = ()) -> None:
        models = tuple(random_model(name) for name in names)
        self.answers[number].set_result(FetchedModels(models, (), {}, left_out, 1, 0))
        self.background.run()

    def fail(self, number: int) -> None:
        self.answers[number].set_exception(Unavailable("gone"))
        self.background.run()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_objects_of_higher_priority_are_requested_first(scene: Scene) -> None:
    scene.fetcher.want(["x"], 0)
    scene.fetcher.want(["a", "b", "c"], 0)
    scene.fetcher.want(["z"], 2)
    scene.answer(0, "x")
    assert scene.asked == [("x",), ("z", "a")]


def test_left_out_models_are_requested_at_once_but_later_after_an_empty_answer(
    scene: Scene,
) -> None:
    scene.fetcher.want(["a", "b"])
    scene.answer(0, "a", left_out=("b",))
    assert scene.asked[1:] == [("b",)]
    scene.answer(1, left_out=("b",))
    assert len(scene.asked) == 2, "an immediate request would get the same answer"
    scene.background.advance(1.0)
    assert scene.asked[2:] == [("b",)]


def test_an_overdue_request_is_overtaken_and_its_late_answer_is_used(scene: Scene) -> None:
    scene.fetcher.want(["a", "b", "c"])
    scene.background.advance(9.9)
    assert scene.asked == [("a", "b")]
    scene.background.advance(0.2)
    assert scene.asked[1:] == [("c",)]
    scene.answer(0, "a", "b")
    assert scene.came == ["a", "b"]


def test_an_overdue_request_that_fails_counts_as_one_failure(scene: Scene) -> None:
    scene.fetcher.want(["a"])
    scene.background.advance(10.0)
    scene.fail(0)
    scene.background.advance(0.6)
    assert scene.asked == [("a",), ("a",)], "after 0.5 s, as after a first failure"


def test_a_failed_object_that_is_not_wanted_any_more_causes_no_further_work(scene: Scene) -> None:
    scene.fetcher.want(["a"])
    scene.fetcher.want(["b"])
    scene.fail(0)
    assert scene.asked == [("a",), ("b",)]
    assert scene.background.advance(9.0) <= 1
    assert scene.asked == [("a",), ("b",)]


def test_objects_that_left_the_catalogue_are_not_requested_again(scene: Scene) -> None:
    scene.fetcher.want(["a", "b"])
    scene.fail(0)
    scene.fetcher.keep({"b"})
    scene.background.advance(5.0)
    assert scene.asked == [("a", "b"), ("b",)]
