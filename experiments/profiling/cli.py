"""The command ``nearsight profile``."""

# ruff: noqa: PLR0917  heavy imports are in the command's body; its parameters are its options

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from nearsight.common.command_line.terminal import print_json, print_line, print_table, progress_bar
from nearsight.common.errors import InvalidArgument
from nearsight.common.files import check_writable
from nearsight.experiments.framework.extra import require_experiments

if TYPE_CHECKING:
    from nearsight.common.object_cache.profile import CacheProfile
    from nearsight.experiments.profiling.measuring import ProfilingPlan

app = typer.Typer()


@app.command()
def profile(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Data set: references and photos of them.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Profile file to write.")] = Path("profile.json"),
    backend: Annotated[str, typer.Option(help="Classifier backend.")] = "auto",
    query_features: Annotated[
        int | None, typer.Option(metavar="N", help="Features per photo of an edge; default: 800.")
    ] = None,
    sizes: Annotated[
        str, typer.Option(metavar="K,K,…", help="Cache sizes; default: 1 and fractions of all objects.")
    ] = "",
    subsets: Annotated[int, typer.Option(min=1, help="Random subsets per size.")] = 8,
    relevant: Annotated[int, typer.Option(min=1, help="Photos of cached objects per subset.")] = 20,
    noise: Annotated[int, typer.Option(min=0, help="Photos of other objects per subset.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random choices.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run for seconds, not minutes: 2 subsets, few photos.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the profile as JSON.")] = False,
    device: Annotated[
        bool, typer.Option("--device", help="Profile a device: small caches, several numbers of features.")
    ] = False,
    features: Annotated[
        str | None,
        typer.Option(metavar="N,N,…", help="Numbers of features, with --device; default: 200,400,600,800."),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Picture of the measurements; default: beside the profile."),
    ] = None,
) -> None:
    """Measure this machine: f(k), recall(k) and precision(k) of a recognition cache of k objects.

    Run it on the machine of the daemon, and give the file to `nearsight edge --profile FILE`, or with
    --device to `nearsight device --profile FILE`.
    """
    require_experiments("profile", ("matplotlib", "sklearn"))
    if features is not None and not device:
        raise InvalidArgument("--features needs --device", advice="for an edge, give --query-features")
    if query_features is not None and device:
        raise InvalidArgument("--query-features has no effect with --device", advice="give --features")
    from nearsight.common.recognition.object_recognizer import pin_threads
    from nearsight.common.recognition.settings import RecognitionSettings
    from nearsight.device.prefetching.device_profile import DeviceProfile
    from nearsight.experiments.datasets.dataset import merge_datasets
    from nearsight.experiments.datasets.loading import load_datasets
    from nearsight.experiments.framework.drawing import check_picture, picture_path
    from nearsight.experiments.profiling.analysis import FEATURE_COUNTS, analyse
    from nearsight.experiments.profiling.measuring import ProfilingPlan, Progress
    from nearsight.experiments.profiling.picture import draw_profiles

    picture = picture_path(figure or out.with_suffix(".png"))
    check_writable(out)
    check_picture(picture)
    if picture == out:
        raise InvalidArgument(
            f"{out} would be the profile and its picture", advice="give another file with --figure"
        )
    pin_threads()
    plan = ProfilingPlan(_parse_numbers(sizes, "--sizes"), subsets, relevant, noise, seed)
    if quick:
        plan = plan.shortened()
    settings, counts = RecognitionSettings(backend=backend), None
    if device:
        counts = FEATURE_COUNTS if features is None else _parse_numbers(features, "--features")
    elif query_features is not None:
        settings = RecognitionSettings(backend=backend, query_features=query_features)
    dataset = merge_datasets(load_datasets(folder), folder.resolve().name)
    with ExitStack() as bars:

        def progress(stage: str, steps: int) -> Progress:
            bars.close()
            return bars.enter_context(progress_bar(stage, steps))

        profiles, skipped = analyse(dataset, settings, plan, progress, features=counts)
    result = DeviceProfile(profiles=profiles) if device else profiles[0]
    result.save(out)
    draw_profiles(profiles, picture, with_extraction=device)
    print_line(f"picture: {picture}", err=True)
    for line in skipped:
        print_line(f"skipped {line}", err=True)
    if as_json:
        print_json(result.model_dump(mode="json"))
        return
    if device:
        _print_table_4_1(profiles)
    else:
        _print_measurements(profiles[0], plan)
    tier = "device" if device else "edge"
    print_line(f"written to {out}; use it with: nearsight {tier} --profile {quote(str(out))}")


def _print_measurements(profile: CacheProfile, plan: ProfilingPlan) -> None:
    print_line(f"{profile.dataset}; backend {profile.backend}, {plan.subsets} subsets per size")
    print_table(
        ("k", "lookup ms", "recall", "precision"),
        [
            (
                point.k,
                f"{point.lookup_ms:.2f} ± {point.lookup_ms_std:.2f}",
                _share(point.recall, point.recall_std),
                _share(point.precision, point.precision_std),
            )
            for point in profile.measurements
        ],
        right=("k", "lookup ms", "recall", "precision"),
    )
    print_line(f"f(k)         = {_polynomial(profile.lookup_ms)} ms")
    print_line(f"recall(k)    = {_polynomial(profile.recall)}")
    print_line(f"precision(k) = {_polynomial(profile.precision)}")
    print_line(f"extraction   = {profile.extraction_ms:.2f} ms per photo")


def _share(mean: float | None, std: float | None) -> str:
    """A dash if no photo showed the value."""
    return "-" if mean is None or std is None else f"{mean:.3f} ± {std:.3f}"


def _print_table_4_1(profiles: Sequence[CacheProfile]) -> None:
    columns = ("features", "f_D(k) ms, extraction included", "recall_D(k)", "precision(k)")
    rows = [
        (
            one.query_features,
            _polynomial((one.lookup_ms[0] + one.extraction_ms, *one.lookup_ms[1:])),
            _polynomial(one.recall),
            _polynomial(one.precision),
        )
        for one in profiles
    ]
    print_line(f"{profiles[0].dataset}; backend {profiles[0].backend}")
    print_table(columns, rows, title="Table 4.1 on this machine", right=("features",))


def _parse_numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in text.split(",") if part.strip()}))
    except ValueError as error:
        raise InvalidArgument(
            f"{option} {text!r} is not a list of numbers", advice=f"for example {option} 1,10,50,100"
        ) from error


def _polynomial(coefficients: tuple[float, ...]) -> str:
    names = ("", " k", " k²", " k³")
    terms = [f"{abs(c):.4g}{name}" for c, name in zip(coefficients, names, strict=False)]
    signs = ["-" if c < 0 else "+" for c in coefficients]
    first = ("-" if coefficients[0] < 0 else "") + terms[0]
    return first + "".join(f" {sign} {term}" for sign, term in zip(signs[1:], terms[1:], strict=True))
