"""`demur reproduce` and `demur demo`: the experiments of the paper, and a small one to look at."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from demur.cli.options import Command, gathered
from demur.cli.output import Progress, refuse_existing
from demur.cli.printing import (
    ONLY_THESE_OOD,
    Cell,
    Heading,
    Result,
    ResultTable,
    RowGroup,
    Section,
)
from demur.core.rates import OperatingPoint
from demur.core.rule import rule_data

if TYPE_CHECKING:
    from demur.reproduce.demo import Demo, DemoOutcome, SecondAct
    from demur.reproduce.table2_scores import Place, Scores

UNABLE = "unable"


@click.command()
@click.option(
    "-o",
    "--output",
    default="demur-demo",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write to.",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed.")
@click.option("--force", is_flag=True, help="Replace the files of an earlier run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def demo_command(output: Path, seed: int, force: bool, as_json: bool) -> None:
    """Train, tune and report on a small built-in example, without any download.

    A classifier of the handwritten digits 0 to 6 has to reject 7, 8 and 9, which it was not
    taught. Writes a report, the tuned rule and the scores, which all other commands read.
    Then thirty days in use: from day 15 on some digits come upside down, and a watch gives alarm.
    """
    from demur.reproduce.demo import FILES, LIVE_FILES, play, run, write

    for name in (*FILES, *LIVE_FILES):
        refuse_existing(output / name, force=force)
    output.mkdir(parents=True, exist_ok=True)
    with Progress("training and tuning"):
        demo = run(seed)
    with Progress("writing the report"):
        report = write(demo, output)
    with Progress("watching thirty days"):
        second = play(demo, output, seed)
    sections = [
        Section(_story(demo), table=_table(demo), notes=[*_reading(demo), ONLY_THESE_OOD]),
        Section([report.decision]),
        Section(_watched(second)),
        Section(_next(output, second)),
    ]
    Result(sections, _data(demo, output, second)).show(as_json=as_json)


def _story(demo: Demo) -> list[str]:
    sizes = [
        f"{int((~part.is_ood).sum())} ID and {int(part.is_ood.sum())} OOD"
        for part in (demo.tune, demo.test)
    ]
    return [
        f"A classifier of the digits 0 to 6 is right on {demo.accuracy:.1%} of new images; "
        "7, 8 and 9 are OOD.",
        f"Images to tune on: {sizes[0]}; held out: {sizes[1]}.",
    ]


def _reading(demo: Demo) -> list[str]:
    """Say how to read the table, of which a single score may seem to win."""
    accepted = max(
        int(outcome.held_out.accepted_id) for outcome in demo.outcomes if outcome.held_out
    )
    return [
        'Tuned on one half of the images; "held out" is the other half. * is the least of all.',
        "Where it is tuned, a pair is never worse than its single scores. Held out, one error more "
        f"or less among at most {accepted} accepted images is {1 / accepted:.4f}: what is closer "
        "than a few of these is chance, so that msp alone can look better. The report has "
        "intervals.",
    ]


def _table(demo: Demo) -> ResultTable:
    header = ["", "tuned", "held out", "TPR held out", "FPR held out"]
    groups = []
    for name in dict.fromkeys(outcome.model for outcome in demo.outcomes):
        outcomes = [outcome for outcome in demo.outcomes if outcome.model == name]
        texts = [_texts(outcome) for outcome in outcomes]
        # Of the objective, the least is best; texts of equal length compare as numbers.
        best = [min(column) for column in list(zip(*texts, strict=True))[:2]]
        rows = [
            [
                Cell(" + ".join(outcome.method)),
                *(
                    Cell(text, text == least != UNABLE)
                    for text, least in zip(row, best, strict=False)
                ),
                *map(Cell, row[2:]),
            ]
            for outcome, row in zip(outcomes, texts, strict=True)
        ]
        objective = "expected cost" if name == "cost" else f"selective risk at {name}"
        groups.append(RowGroup(objective, rows))
    return ResultTable([Heading(name) for name in header], groups)


def _texts(outcome: DemoOutcome) -> list[str]:
    if outcome.tuned is None or outcome.held_out is None:
        return [UNABLE] * 4
    values = [_objective(outcome.tuned), _objective(outcome.held_out)]
    values += [outcome.held_out.tpr, outcome.held_out.fpr]
    return [f"{value:.4f}" for value in values]


def _objective(point: OperatingPoint) -> float:
    """Return what the model of the point minimises."""
    return point.selective_risk if point.expected_cost is None else point.expected_cost


def _watched(second: SecondAct) -> list[str]:
    from demur.reproduce.demo import CHANGE, DAYS

    status = second.status
    return [
        f"Then {DAYS} days in use, {status.rows:,} images. From day {CHANGE} on some digits come "
        "upside down.",
        status.message,
    ]


def _next(output: Path, second: SecondAct) -> list[str]:
    from demur.reproduce.demo import tune_command, watch_command

    def quoted(name: str) -> str:
        return shlex.quote(str(output / name))

    return [
        f"Open {output / 'report.html'} and {output / 'watch.html'} in a browser. Then try",
        f"  {tune_command(output)} --min-tpr .8 --max-fpr .25",
        f"  demur evaluate {quoted('rule.json')} {quoted('test.csv')} --loss is_wrong --ood set",
        f"  {watch_command(output, second.promised)}",
        "and with a table of your own, a row per input and a doubt or two, higher = more doubt,",
        "  demur tune scores.csv --scores A,B --loss WRONG --ood SET --min-tpr .8 --max-fpr .1 "
        "--holdout .3 -o rule.json --report report.html",
    ]


def _data(demo: Demo, output: Path, second: SecondAct) -> dict[str, Any]:
    return {
        "accuracy": demo.accuracy,
        "outcomes": [
            {
                "scores": list(outcome.method),
                "model": outcome.model,
                "rule": None if outcome.rule is None else rule_data(outcome.rule),
                "tuned": None if outcome.tuned is None else asdict(outcome.tuned),
                "held_out": None if outcome.held_out is None else asdict(outcome.held_out),
            }
            for outcome in demo.outcomes
        ],
        "watch": second.status.to_data(),
        "output": str(output),
    }


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
    from demur.reproduce.synthetic import table1

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
    from demur.reproduce.synthetic import write_figures

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

    def scores(self, place: Place, *, more: bool = False) -> Scores:
        from demur.reproduce.table2_scores import compute_scores

        return compute_scores(
            self.id_set,
            place,
            network=self.network,
            bank="augmented" if self.bank == "augmented" else "plain",
            seed=self.seed,
            train_epochs=self.train,
            all_mnist=self.all_mnist,
            more=more,
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
    from demur.reproduce.networks import Cache
    from demur.reproduce.table2 import table2

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
@click.option(
    "--learn",
    multiple=True,
    type=click.Choice(["auto", "logistic", "boosting", "mean"]),
    help="Learn two scores from all six, and from seven more, too, and look at tight bounds on the "
    "FPR; repeat to compare methods. Boosting takes seconds a halving.",
)
@click.option("--only", multiple=True, metavar="SET", help="Only this OOD set; repeat for several.")
def heldout_command(
    given: _RealData, halvings: int, learn: tuple[str, ...], only: tuple[str, ...]
) -> None:
    """Tune on one half, test on the other: double scores, their parts, SIRC, plug-in, learned."""
    from demur.adapters import torch as _needs_torch  # noqa: F401
    from demur.reproduce.heldout import heldout

    notes = _Notes()
    scores = given.scores(given.place(notes), more=bool(learn))
    study = heldout(scores, splits=halvings, seed=given.seed, learn=learn, only=only, notify=notes)
    notes.clear()
    _show(study, as_json=given.as_json)
