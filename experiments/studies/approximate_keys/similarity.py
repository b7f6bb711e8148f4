"""Caches compared in figure 6: exact and approximate keys, and four nearest-neighbour libraries.

A similarity cache answers with the majority class among the 10 nearest cached inputs within distance epsilon;
gptcache with the class of the nearest one. Inputs are packet sizes as shares of the largest size. All
libraries except scikit-learn are optional, and are imported where they are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearsight.common.result_cache.approximations import Approximation
from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.result_cache import ResultCache
from nearsight.experiments.studies.approximate_keys.traffic import play

EPSILON = 2.0
NEIGHBOURS = 10
_LSH_BITS = 16
"""Number of hash bits, which the paper does not state; with 8 a lookup takes ten times as long, with 24 half
as long."""
_FALCONN_TABLES, _FALCONN_PROBES = 10, 100
_FAR = 1000.0
"""Length of all vectors after an additional coordinate is appended. GPTCache scales vectors to length 1,
which would otherwise change their distances."""

Input = NDArray[np.float64]
Inputs = NDArray[np.float64]
Labels = NDArray[np.int64]
"""Shapes (100,), (N, 100) and (N,): one input, many inputs, and their classes."""
Neighbours = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Distances (n,) and classes (n,) of the nearest cached inputs, ascending."""


@dataclass(frozen=True, slots=True)
class ComparedCache:
    """A cache of K results, filled before the measurement."""

    lookup: Callable[[Any], int | None]
    """Return the class of an input; None if the cache does not answer."""
    insert: Callable[[Any, int], object]
    learn: Callable[[Any, int], object] = lambda _x, _label: None
    """Learn the classifier's result for an input without an answer; similarity caches do not change."""
    neighbours: Callable[[Any], Neighbours] | None = None
    """Return the nearest inputs that a similarity cache finds, at most 10."""
    close: Callable[[], object] = lambda: None


def keys(
    approx: Approximation, refresh: AutoRefresh, history: NDArray[Any], labels: Sequence[int], size: int
) -> ComparedCache:
    """The cache of this project; it takes raw flows.

    With ``identity`` and without verification it is an exact cache.

    Parameters
    ----------
    approx : Approximation
    refresh : AutoRefresh
    history : ndarray, shape (N, 100)
        Earlier flows.
    labels : sequence of N int
        Classes of the earlier flows.
    size : int
        K: the most popular keys of the history are cached, as in the paper's ideal cache.
    """
    asked = [approx(x) for x in history]
    popular = frozenset(key for key, _ in Counter(asked).most_common(size))
    cache: ResultCache[bytes, int] = ResultCache(refresh, size, only=popular)
    play(cache, zip(asked, labels, strict=True))

    def lookup(x: NDArray[Any]) -> int | None:
        entry = cache.find(approx(x), 0.0)
        return None if entry is None else entry.value

    return ComparedCache(
        lookup,
        lambda x, label: cache.correct(approx(x), label, 0.0),
        lambda x, label: cache.learn(approx(x), label, 0.0),
    )


def vote(neighbours: Neighbours, epsilon: float) -> int | None:
    """Majority class of the neighbours within epsilon; None if there are none."""
    distances, labels = neighbours
    near = labels[distances <= epsilon]
    return int(np.bincount(near).argmax()) if len(near) else None


def ball_tree(inputs: Inputs, labels: Labels) -> ComparedCache:
    """Ball tree of scikit-learn; it is immutable, so an insertion builds a new tree."""
    from sklearn.neighbors import BallTree  # noqa: PLC0415  takes long to import

    tree = BallTree(inputs)

    def neighbours(x: Input) -> Neighbours:
        distances, places = tree.query(x[None], NEIGHBOURS)
        return distances[0], labels[places[0]]

    return _voting(neighbours, _built_again(ball_tree, inputs, labels))


def lshash(inputs: Inputs, labels: Labels) -> ComparedCache:
    """Locality-sensitive hashing of lshashpy3, with one table, as in the paper; Euclidean distance."""
    from lshashpy3 import LSHash  # noqa: PLC0415 optional

    index = LSHash(_LSH_BITS, inputs.shape[1])
    index.uniform_planes = [np.random.default_rng(1).standard_normal((_LSH_BITS, inputs.shape[1]))]

    def insert(x: Input, label: int) -> None:
        index.index(x, (label,))  # a bare 0 would not be stored

    def neighbours(x: Input) -> Neighbours:
        found = index.query(x, NEIGHBOURS, "true_euclidean")
        return np.array([far for _, far in found]), np.array([one[1][0] for one, _ in found], dtype=np.int64)

    for x, label in zip(inputs, labels.tolist(), strict=True):
        insert(x, label)
    return _voting(neighbours, insert)


def falconn(inputs: Inputs, labels: Labels) -> ComparedCache:
    """FALCONN: multi-probe LSH of centred inputs; immutable as well."""
    import falconn as library  # noqa: PLC0415 optional

    centre = inputs.mean(axis=0)
    centred = (inputs - centre).astype(np.float32)
    parameters = library.get_default_parameters(
        *centred.shape, library.DistanceFunction.EuclideanSquared, True
    )
    parameters.l, parameters.seed, parameters.num_setup_threads = _FALCONN_TABLES, 1, 1
    index = library.LSHIndex(parameters)
    index.setup(centred)  # stores a pointer, not a copy
    query = index.construct_query_object(_FALCONN_PROBES)

    def neighbours(x: Input) -> Neighbours:
        asked = (x - centre).astype(np.float32)
        places = query.find_k_nearest_neighbors(asked, NEIGHBOURS)
        return np.linalg.norm(centred[places] - asked, axis=1), labels[places]

    return _voting(neighbours, _built_again(falconn, inputs, labels))


def gptcache(inputs: Inputs, labels: Labels, folder: Path) -> ComparedCache:
    """The package gptcache with SQLite and FAISS: the nearest input answers, without a vote.

    Its questions are texts. Here a text has the numbers of the input, which the embedding parses.
    """
    import sqlalchemy  # noqa: F401, PLC0415 without it, gptcache would run pip
    from gptcache import Cache, Config  # noqa: PLC0415 optional
    from gptcache.adapter import api  # noqa: PLC0415
    from gptcache.manager import CacheBase, VectorBase, get_data_manager  # noqa: PLC0415
    from gptcache.processor.post import first  # noqa: PLC0415
    from gptcache.processor.pre import get_prompt  # noqa: PLC0415
    from gptcache.similarity_evaluation import SearchDistanceEvaluation  # noqa: PLC0415

    folder = Path(mkdtemp(dir=folder))
    store = CacheBase("sqlite", sql_url=f"sqlite:///{folder / 'answers.db'}")
    index = VectorBase("faiss", dimension=inputs.shape[1] + 1, index_path=str(folder / "index"))
    manager = get_data_manager(store, index, max_size=2 * len(inputs))
    # By default the manager closes only at exit, and then writes the index into a deleted folder.
    manager.close = store._engine.dispose
    most = 2 * (EPSILON / _FAR) ** 2
    """Largest squared distance of the evaluation; the similarity threshold is half of it."""
    cache = Cache()
    cache.init(
        pre_embedding_func=get_prompt,
        embedding_func=_embedding,
        data_manager=manager,
        similarity_evaluation=SearchDistanceEvaluation(most),
        post_process_messages_func=first,
        config=Config(similarity_threshold=0.5, enable_token_counter=False),
    )
    prompts = [_prompt(x) for x in inputs]
    answers = [str(label) for label in labels.tolist()]
    manager.import_data(prompts, answers, [_embedding(one) for one in prompts], [None] * len(prompts))

    def lookup(x: Input) -> int | None:
        answer = api.get(_prompt(x), cache_obj=cache)
        return None if answer is None else int(answer)

    return ComparedCache(
        lookup, lambda x, label: api.put(_prompt(x), str(label), cache_obj=cache), close=manager.close
    )


def similarity_caches(folder: Path) -> dict[str, tuple[Callable[[Inputs, Labels], ComparedCache], str]]:
    """Builders of the similarity caches by name, each with the command that installs its library.

    ``folder`` is for the files that they write.
    """
    extra = "pip install 'nearsight[similarity]'"
    return {
        "BallTree": (ball_tree, ""),
        "lshashpy3": (lshash, extra),
        "FALCONN": (falconn, "make falconn"),
        "gptcache": (partial(gptcache, folder=folder), extra),
    }


def _voting(
    neighbours: Callable[[Input], Neighbours], insert: Callable[[Input, int], object]
) -> ComparedCache:
    return ComparedCache(lambda x: vote(neighbours(x), EPSILON), insert, neighbours=neighbours)


def _built_again(
    build: Callable[[Inputs, Labels], ComparedCache], inputs: Inputs, labels: Labels
) -> Callable[[Input, int], ComparedCache]:
    return lambda x, label: build(np.vstack([inputs, x]), np.append(labels, label))


def _prompt(x: Input) -> str:
    return " ".join(map(repr, x.tolist()))


def _embedding(prompt: str, **_: object) -> NDArray[np.float64]:
    x = np.array(prompt.split(), dtype=np.float64)
    return np.append(x, np.sqrt(_FAR**2 - x @ x))
