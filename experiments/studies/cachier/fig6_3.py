"""Figure 6.3: order of the Markov model that best predicts the next exhibit (dissertation, 6.2.5.2).

80 % of the visitors train the model, 20 % test it; consecutive duplicates are merged. At every step of a test
visitor, the model predicts the most probable next exhibits. The step is a hit if the actual next exhibit is
among them. The model is that of the edge in two variants: bare, in which an unseen history predicts
nothing (the paper does not state its prior); and with its prior from the lower orders, as used by the edge.

Generated visitors are drawn anew for every repetition. They choose the next exhibit by their current
position, so the first order predicts them best by construction. This result says nothing about museums and is
no target. Targets apply to real visitors (``--visits``). These are divided into fifths several times, and
each fifth is the test set once. Visitors of only one exhibit are left out, because there is no step to
predict. The logs are evaluated raw, and without the flicker of sensors between neighbouring exhibits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.markov import LARGEST_ORDER, MarkovModel, MarkovSettings
from nearsight.experiments.framework import drawing, numbers
from nearsight.experiments.framework.experiment import Experiment, Results, Row, RunOptions, StoredRow, Target
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.traces.visits import read_visits_csv, sequences

_LEAST_FLICKER = 4
"""Shortest alternation A B A B … that counts as flicker; visitors do go back once, A B A."""
GENERATED, RAW, STEADY = "generated", "real, raw", "real, without flicker"
BARE, BACKOFF = "bare", "backoff"
_PRIORS = {BARE: "none", BACKOFF: "lower orders"}
TOPS = (1, 3, 5, 8)
_FOLDS = 5
_REPETITIONS, _SMOKE_REPETITIONS = 20, 2
_ROOM_FOR_LABEL = 0.1
_PRIOR: Any = {"marker": "D", "color": "white", "markeredgecolor": "black", "markersize": 4}
_TITLES = {
    GENERATED: "Generated visitors:\nby construction",
    RAW: "Real visitors, raw log",
    STEADY: "Real visitors, flicker removed",
}

Walks = Sequence[Sequence[str]]


class Figure(Experiment):
    """Accuracy of Markov models of order 0 to 3 in predicting a visitor's next exhibit."""

    name: ClassVar[str] = "fig6.3"
    source: ClassVar[str] = "Cachier dissertation, 6.2.5.2"
    takes: ClassVar[tuple[str, ...]] = ("visits",)

    def cells(self, options: RunOptions) -> list[dict[str, Any]]:
        """One cell per kind of visitors and repetition."""
        repetitions = _SMOKE_REPETITIONS if options.smoke else _REPETITIONS
        traces = [GENERATED] if options.visits is None else [GENERATED, RAW, STEADY]
        return [{"trace": trace, "number": number} for trace in traces for number in range(repetitions)]

    def check(self, options: RunOptions) -> None:
        """There must be enough real visitors for a division into fifths."""
        if options.visits is not None:
            _real_walks(options.visits)

    def run(self, options: RunOptions, trace: str, number: int) -> Iterator[Row]:
        """Train and test every model; one row per order, prior and m."""
        walks = _walks(trace, options, options.rng(self.name, "visitors", number))
        training, test = _split(walks, number % _FOLDS, options.rng(self.name, "split", number // _FOLDS))
        for order, prior in product(range(LARGEST_ORDER + 1), (BARE, BACKOFF)):
            settings = MarkovSettings(order=order, backoff=prior == BACKOFF)
            steps, hits = accuracy(training, test, settings)
            measured: Row = {"trace": trace, "repetition": number, "order": order, "prior": prior}
            for top in TOPS:
                yield {**measured, "top": top, "steps": steps, "hits": hits[top]}

    def metrics(self, rows: Sequence[StoredRow]) -> dict[str, Any]:
        """``accuracy.<trace>.<prior>.order <n>.top <m>``: mean and spread over the repetitions."""
        counted = [{**row, "order": f"order {row['order']}", "top": f"top {row['top']}"} for row in rows]
        return {"accuracy": numbers.nested(counted, ("trace", "prior", "order", "top"), _accuracy)}

    def targets(self, summary: Mapping[str, Any]) -> Iterator[Target]:
        """The paper's findings on real visitors, and our own (top 3, order at top 8); none without them."""
        found = summary["accuracy"]
        for trace in (RAW, STEADY):
            if trace in found:
                for top in ("top 5", "top 8"):
                    yield _first_order_is_best(trace, found[trace][BARE], top)
        if RAW in found:
            of_first = found[RAW][BARE]["order 1"]
            top3, top8 = of_first["top 3"]["mean"], of_first["top 8"]["mean"]
            yield Target.at_least(
                "real visitors, raw, order 1: top 8 at least 0.80, as in the paper", top8, 0.8
            )
            yield Target.at_least("real visitors, raw, order 1: top 3 at least 0.70", top3, 0.7)

    def table(self, summary: Mapping[str, Any]) -> Iterator[dict[str, object]]:
        """One line per kind of visitors, order and prior."""
        for trace, prior, order, tops in numbers.leaves(summary["accuracy"], 3):
            yield {
                "visitors": trace,
                "order": order.removeprefix("order "),
                "prior": _PRIORS[prior],
                **{top: numbers.mean_in_words(one, 3) for top, one in tops.items()},
            }

    def draw(self, results: Results) -> drawing.Picture:
        """Draw bars for the bare model, and marks for the model with a prior."""
        found = results.metrics["accuracy"]
        tops = {GENERATED: (5, 8), RAW: TOPS, STEADY: TOPS}
        picture = drawing.new_picture(1.4 + 3.2 * len(found), 4.0)
        panels = picture.subplots(
            1, len(found), sharey=True, squeeze=False, width_ratios=[len(tops[one]) + 1 for one in found]
        )[0]
        for axes, (trace, priors) in zip(panels, found.items(), strict=True):
            _draw(axes, priors, tops[trace])
            axes.set_title(_TITLES[trace])
        panels[0].set_ylabel("share of steps whose next exhibit\nis among the first m predicted")
        runs = found[GENERATED][BARE]["order 1"]["top 5"]["runs"]
        drawing.caption(
            picture,
            f"80 % of the visitors for training, 20 % for testing: bars are means of {runs} divisions",
        )
        more: dict[str, Any] = {
            "range over all divisions": Line2D([], [], color="#8a8a8a", linewidth=1.0),
            "with a prior from the lower orders": Line2D([], [], **_PRIOR),
        }
        drawing.legend_below(picture, panels[-1], 2 if len(found) == 1 else 6, **more)
        return picture


def accuracy(training: Walks, test: Walks, settings: MarkovSettings) -> tuple[int, dict[int, int]]:
    """Number of steps in the test walks, and number of hits among the first m predictions, by m."""
    objects = sorted({exhibit for walk in (*training, *test) for exhibit in walk})
    model = MarkovModel(objects, settings)
    for visitor, walk in enumerate(training):
        for exhibit in walk:
            model.observe(str(visitor), exhibit, 0.0)
    ranks: list[int] = []
    for walk in test:
        for at in range(1, len(walk)):
            past = tuple(walk[max(0, at - LARGEST_ORDER) : at])
            predicted = model.next_objects(past, 0.0, max(TOPS)).object_ids
            ranks.append(predicted.index(walk[at]) if walk[at] in predicted else max(TOPS))
    return len(ranks), {top: sum(rank < top for rank in ranks) for top in TOPS}


def _walks(trace: str, options: RunOptions, rng: np.random.Generator) -> Walks:
    if trace == GENERATED or options.visits is None:
        return list(sequences(generate_visits(rng)).values())
    walks = _real_walks(options.visits)
    return [without_flicker(walk) for walk in walks] if trace == STEADY else walks


def _real_walks(visits: Path) -> Walks:
    """Walks of more than one exhibit, at least one per fold."""
    walks = [walk for walk in sequences(read_visits_csv(visits)).values() if len(walk) > 1]
    if len(walks) < _FOLDS:
        raise InvalidArgument(
            f"{visits} has {len(walks)} visitors of more than one exhibit",
            advice=f"at least {_FOLDS} are needed",
        )
    return walks


def without_flicker(walk: Sequence[str]) -> tuple[str, ...]:
    """Replace every alternation A B A B … by A B.

    Such alternations come from sensors of neighbouring exhibits while a visitor stands between them.

    Parameters
    ----------
    walk : sequence of str
        Exhibits in order, without consecutive duplicates.
    """
    steady: list[str] = []
    at = 0
    while at < len(walk):
        end = _end_of_alternation(walk, at)
        if end - at >= _LEAST_FLICKER:
            steady.extend(walk[at : at + 2])
            at = end
        else:
            steady.append(walk[at])
            at += 1
    return tuple(steady)


def _end_of_alternation(walk: Sequence[str], start: int) -> int:
    """Index after the last entry, from ``start`` on, that equals the entry two before it."""
    end = min(start + 2, len(walk))
    while end < len(walk) and walk[end] == walk[end - 2]:
        end += 1
    return end


def _split(walks: Walks, fold: int, rng: np.random.Generator) -> tuple[Walks, Walks]:
    """Training and test visitors, 80 % and 20 %; the folds of one shuffle test every visitor once."""
    shuffled = rng.permutation(len(walks)).tolist()
    test = frozenset(shuffled[fold::_FOLDS])
    training = [walk for index, walk in enumerate(walks) if index not in test]
    return training, [walks[index] for index in sorted(test)]


def _first_order_is_best(trace: str, orders: Mapping[str, Any], top: str) -> Target:
    means = {order: tops[top]["mean"] for order, tops in orders.items()}
    first = means.pop("order 1")
    ahead = first - max(means.values())
    kind = trace.replace("real", "real visitors", 1)
    return Target(f"{kind}, {top}: lead of order 1 over the best other bare order", ahead, ahead > 0)


def _accuracy(rows: Sequence[StoredRow]) -> dict[str, float]:
    return numbers.mean_and_spread([int(row["hits"]) / int(row["steps"]) for row in rows])


def _draw(axes: Axes, priors: Mapping[str, Any], tops: Sequence[int]) -> None:
    orders = range(LARGEST_ORDER + 1)
    width = 0.8 / len(tops)
    for place, top in enumerate(tops):
        colour = drawing.SEQUENCE[TOPS.index(top)]
        x = np.array(orders) + (place - (len(tops) - 1) / 2) * width
        bare = [priors[BARE][f"order {order}"][f"top {top}"] for order in orders]
        means, spread = drawing.error_bars(bare)
        axes.bar(x, means, 0.92 * width, color=colour, label=f"m = {top}")
        axes.errorbar(x, means, spread, fmt="none", ecolor="#8a8a8a", elinewidth=1.0, capsize=2)
        backoff = [priors[BACKOFF][f"order {order}"][f"top {top}"]["mean"] for order in orders]
        axes.plot(x, backoff, linestyle="none", zorder=3, **_PRIOR)
        for at, mean, highest in zip(x, means, means + spread[1], strict=True):
            inside = mean > _ROOM_FOR_LABEL
            axes.text(
                at,
                0.012 if inside else highest + 0.025,
                f"{mean:.2f}",
                color="white" if inside else "black",
                fontsize=7,
                rotation=90,
                ha="center",
                va="bottom",
            )
    axes.set(xticks=list(orders), xlabel="order of the Markov model", ylim=(0, 1))
