"""``nearsight museum``: generates a museum, visitors' traces and a contact sheet."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from nearsight.common.command_line.terminal import print_line
from nearsight.common.errors import InvalidArgument

app = typer.Typer(
    no_args_is_help=True, help="Generate a museum to test nearsight with: pictures, photos, visits."
)


@app.command()
def generate(
    out: Annotated[Path, typer.Option("--out", help="Folder to write; an interrupted run is continued.")],
    objects: Annotated[int, typer.Option(min=1, help="Exhibits in the catalogue.")] = 500,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the museum: the same seed, the same pictures.")
    ] = 1,
    photos: Annotated[int, typer.Option(min=0, help="Photos of each exhibit.")] = 2,
    unknown: Annotated[
        int, typer.Option(min=0, help="Photos of exhibits that are not in the catalogue.")
    ] = 100,
    difficulty: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Difficulty of the photos: 0 easy, 1 hard.", show_default="calibrated"
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Number of processes; 0: one per processor.")] = 0,
) -> None:
    """Paint exhibits and simulate handheld photos of them."""
    from nearsight.common.command_line.terminal import progress_bar
    from nearsight.experiments.museum.camera.photograph import DEFAULT_DIFFICULTY
    from nearsight.experiments.museum.generation import generate_museum
    from nearsight.experiments.museum.settings import MuseumSettings

    hardness = DEFAULT_DIFFICULTY if difficulty is None else difficulty
    settings = MuseumSettings(objects, seed, photos, unknown, hardness)
    with progress_bar("painting and photographing", objects + unknown) as advance:
        generate_museum(out, settings, workers=workers or os.cpu_count() or 1, progress=lambda *_: advance(1))
    print_line(
        f"{out}: {objects} exhibits, {objects * photos} photos of them and {unknown} of others "
        f"(seed {seed}, difficulty {hardness:g})"
    )
    there = quote(str(out))
    print_line(f"next: nearsight cloud ingest {there} --database cloud.db --catalogue museum")
    print_line(f"to view it: nearsight museum sheet {there} --out sheet.png")


@app.command()
def traces(
    museum: Annotated[Path, typer.Argument(help="A generated museum.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write; default: MUSEUM/traces.")
    ] = None,
    sections: Annotated[int, typer.Option(min=1, help="Rooms, each with its own exhibits.")] = 3,
    exhibits: Annotated[int, typer.Option(min=1, help="Exhibits in each section.")] = 44,
    visitors: Annotated[int, typer.Option(min=1, help="Visitors, divided equally among the sections.")] = 180,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the visits: the same seed, the same visits and photos.")
    ] = 1,
) -> None:
    """Simulate visits to a museum: visits.csv, and for each visitor a file with one photo per second."""
    import numpy as np

    from nearsight.experiments.datasets.loading import load_dataset
    from nearsight.experiments.traces.movement import generate_visits
    from nearsight.experiments.traces.requests import photo_requests, write_requests_csv
    from nearsight.experiments.traces.visits import write_visits_csv

    dataset = load_dataset(museum)
    photos: dict[str, list[str]] = {}
    for query in dataset.queries:
        if query.object_id is not None:
            photos.setdefault(query.object_id, []).append(query.path.relative_to(museum).as_posix())
    if len(photos) < sections * exhibits:
        raise InvalidArgument(
            f"{museum} has photos of {len(photos)} exhibits, but {sections * exhibits} are needed",
            advice="give fewer sections or exhibits, or generate a larger museum",
        )
    rng = np.random.default_rng(seed)
    visits = generate_visits(
        rng,
        sections=sections,
        exhibits_per_section=exhibits,
        visitors=visitors,
        exhibits=sorted(photos)[: sections * exhibits],
    )
    folder = out if out is not None else museum / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    write_visits_csv(folder / "visits.csv", visits)
    requests = photo_requests(visits, photos, rng)
    for visitor, asked in requests.items():
        write_requests_csv(folder / f"{visitor}.csv", asked)
    total = sum(len(asked) for asked in requests.values())
    print_line(f"{folder}: {len(visits)} visits of {visitors} visitors, {total} photo requests")
    print_line("next: nearsight replay --help")


@app.command()
def sheet(
    folder: Annotated[
        Path, typer.Argument(help="A museum, or another data set that `nearsight evaluate` reads.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Picture to write: .png or .jpg.")] = Path("sheet.png"),
    count: Annotated[int, typer.Option(min=1, help="Pictures on the sheet.")] = 48,
    columns: Annotated[int, typer.Option(min=1, help="Pictures side by side.")] = 8,
    references: Annotated[
        bool, typer.Option("--references", help="Show the references instead of the photos.")
    ] = False,
) -> None:
    """Put many pictures of a data set on one contact sheet, for visual inspection."""
    import cv2

    from nearsight.experiments.datasets.loading import load_dataset
    from nearsight.experiments.museum.contact_sheet import write_contact_sheet

    dataset = load_dataset(folder)
    paths = [path for reference in dataset.references for path in reference.paths]
    if not references:
        paths = [query.path for query in dataset.queries]
    step = max(1, len(paths) // count)
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # errors are raised
    write_contact_sheet(paths[::step][:count], out, columns)
    print_line(f"{out}: {min(count, len(paths[::step]))} of {len(paths)} pictures")
