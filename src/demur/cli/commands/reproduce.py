"""`demur reproduce`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from demur.cli.options import Command, gathered
from demur.cli.printing import Result, Section

if TYPE_CHECKING:
    from demur.reproduce.table2_scores import Place, Scores

_SIZE = click.option(
    "--n", default=2000, show_default=True, type=click.IntRange(min=20), help="Size of the sample."
)
_SEED = click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the sample."
)


@click.group()
def command() -> None:
    """Repeat the experiments of the paper, printed values beside ours."""


@command.command("table1")
@_SIZE
@_SEED
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def table1_command(n: int, seed: int, as_json: bool) -> None:
    """Table 1: methods A to D on synthetic data, under both models."""
    from demur.reproduce.table1 import table1

    _show(table1(n=n, seed=seed), as_json=as_json)


@command.command("figures")
@click.option(
    "-o",
    "--output",
    default="figures",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write to.",
)
@_SIZE
@_SEED
def figures_command(output: Path, n: int, seed: int) -> None:
    """Risk-coverage at FPR 0.2, ROC and precision-recall curves of methods A to D."""
    from demur.reproduce.figures import write_figures

    for path in write_figures(output, n=n, seed=seed):
        click.echo(path)


def _show(found: Any, *, as_json: bool) -> None:
    Result([Section([str(found)])], found.as_dict()).show(as_json=as_json)


@dataclass(frozen=True, slots=True)
class _RealData:
    """The options of commands that run a network."""

    id_set: str
    network: str | None
    bank: str
    data: Path
    weights: Path | None
    splits: Path | None
    cache: Path
    download: bool
    train: int
    all_mnist: bool
    seed: int
    as_json: bool

    def place(self, notify: Callable[[str, int, int | None], None]) -> Place:
        from demur.reproduce.table2_scores import Place

        usual = self.data / "splits" / "openood_splits.npz"
        return Place(
            data=self.data,
            weights=self.weights or self.data / "weights",
            cache=self.cache,
            splits=self.splits or (usual if usual.is_file() else None),
            download=self.download,
            notify=notify,
        )

    def scores(self, place: Place) -> Scores:
        from demur.reproduce.table2_scores import compute_scores

        return compute_scores(
            self.id_set,
            place,
            network=self.network,
            bank="augmented" if self.bank == "augmented" else "plain",
            seed=self.seed,
            train_epochs=self.train,
            all_mnist=self.all_mnist,
        )


class _Notes:
    """Progress on standard error, on a terminal only."""

    def __init__(self) -> None:
        self._shown = 0.0

    def __call__(self, label: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self._shown < 0.5:
            return
        self._shown = now
        of = f": {done:,}" + (f" of {total:,}" if total else "") if done else ""
        sys.stderr.write(f"\r\x1b[K{label}{of}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


_FOLDER = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _real_data(function: Command) -> Command:
    return gathered(
        "given",
        _RealData,
        [
            click.option(
                "--id",
                "id_set",
                default="mnist",
                show_default=True,
                type=click.Choice(["mnist", "cifar10"]),
                help="The in-distribution set.",
            ),
            click.option(
                "--network",
                type=click.Choice(["lenet", "resnet20", "resnet56", "densenet100"]),
                help="Default: lenet for MNIST, resnet20 for CIFAR-10.",
            ),
            click.option(
                "--bank",
                default="plain",
                show_default=True,
                type=click.Choice(["plain", "augmented"]),
                help="Training images for KNN and ViM; augmented is what OpenOOD v1.0 does.",
            ),
            click.option(
                "--data",
                default="data",
                show_default=True,
                envvar="DEMUR_DATA",
                show_envvar=True,
                type=_FOLDER,
                help="Folder with the data sets in their official layouts.",
            ),
            click.option(
                "--weights", type=_FOLDER, help="Folder with the weights.  [default: DATA/weights]"
            ),
            click.option(
                "--splits",
                type=_FILE,
                help="Lists of test images, an .npz file.  [default: "
                "DATA/splits/openood_splits.npz; without it all test images are used]",
            ),
            click.option(
                "--cache",
                default="demur-cache",
                show_default=True,
                type=_FOLDER,
                help="Folder for what has been computed; a later run goes on from there.",
            ),
            click.option("--download", is_flag=True, help="Fetch missing data and weights."),
            click.option(
                "--train",
                default=0,
                type=click.IntRange(min=0),
                metavar="EPOCHS",
                help="Train the LeNet for so many epochs instead of reading its weights.",
            ),
            click.option(
                "--all-mnist",
                is_flag=True,
                help="With --id cifar10: all 70,000 images of MNIST, not the 10,000 test images.",
            ),
            click.option(
                "--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed."
            ),
            click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts."),
        ],
    )(function)


@command.command("table2")
@_real_data
@click.option(
    "--replicates",
    default=200,
    show_default=True,
    type=click.IntRange(min=0),
    help="Resamples behind the intervals; 0 for none.",
)
def table2_command(given: _RealData, replicates: int) -> None:
    """Table 2: six single and two double scores on MNIST or CIFAR-10."""
    from demur.adapters import torch as _needs_torch  # noqa: F401
    from demur.reproduce.table2 import table2
    from demur.reproduce.table2_cache import Cache

    notes = _Notes()
    place = given.place(notes)
    scores = given.scores(place)
    cache = Cache(place.cache, notify=notes)
    table = table2(scores, cache, replicates=replicates, seed=given.seed)
    notes.clear()
    _show(table, as_json=given.as_json)


@command.command("heldout")
@_real_data
@click.option(
    "--halvings",
    default=100,
    show_default=True,
    type=click.IntRange(min=2),
    help="Random halvings of the data.",
)
def heldout_command(given: _RealData, halvings: int) -> None:
    """Tune on one half, test on the other: double scores, their parts, SIRC, plug-in."""
    from demur.adapters import torch as _needs_torch  # noqa: F401
    from demur.reproduce.heldout import heldout

    notes = _Notes()
    study = heldout(
        given.scores(given.place(notes)), splits=halvings, seed=given.seed, notify=notes
    )
    notes.clear()
    _show(study, as_json=given.as_json)
