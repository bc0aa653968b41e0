"""The two halves of Table 2: data sets, splits, and what the paper prints."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from demur._arrays import IntArray
from demur.errors import InvalidInputError

SINGLES = {"msp": "MSP", "mls": "MLS", "odin": "ODIN", "react": "REACT", "knn": "KNN", "vim": "VIM"}
"""Single scores in the order of the table, and their titles."""
PAIRS = {"knn+msp": ("msp", "knn"), "vim+msp": ("msp", "vim")}
"""Double scores: the risk score and the OOD score."""
TITLES = {**SINGLES, "knn+msp": "KNN+MSP", "vim+msp": "VIM+MSP"}
MIN_TPR = 0.8


@dataclass(frozen=True, slots=True)
class SetPart:
    """Some rows of a data set: those of an OpenOOD list, or all when there is no list."""

    images: str
    """A key of `demur.reproduce.data_sets.SETS`."""
    split: str | None
    """Name of the list in the split file."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What the paper prints of one method on one OOD set; its OSCR is per accepted ID."""

    selective_risk: float
    auroc: float
    oscr: float


@dataclass(frozen=True, slots=True)
class Setup:
    """One half of the table."""

    id: str
    train: str
    test: SetPart
    validation: SetPart
    ood: Mapping[str, SetPart]
    ood_validation: SetPart
    """For the options of ODIN."""
    networks: tuple[str, ...]
    """The default first."""
    targets: Mapping[str, float]
    """FPR bounds the paper prints."""
    printed: Mapping[str, Mapping[str, Printed]] = field(repr=False)
    """By OOD set and method."""


def _printed(names: tuple[str, ...], rows: str) -> dict[str, dict[str, Printed]]:
    table: dict[str, dict[str, Printed]] = {name: {} for name in names}
    for method, line in zip(TITLES, rows.strip().splitlines(), strict=True):
        numbers = [float(word) for word in line.split()]
        for i, name in enumerate(names):
            table[name][method] = Printed(*numbers[3 * i : 3 * i + 3])
    return table


SETUPS: dict[str, Setup] = {
    "mnist": Setup(
        id="mnist",
        train="mnist-train",
        test=SetPart("mnist-test", "mnist_test"),
        validation=SetPart("mnist-test", "mnist_val"),
        ood={
            "notmnist": SetPart("notmnist", "notmnist_test"),
            "fashionmnist": SetPart("fashionmnist-test", "fashionmnist_test"),
            "cifar10": SetPart("cifar10-test", "cifar10_test"),
        },
        ood_validation=SetPart("notmnist", "notmnist_val"),
        networks=("lenet",),
        targets={"notmnist": 0.08, "fashionmnist": 0.10, "cifar10": 0.29},
        printed=_printed(
            ("notmnist", "fashionmnist", "cifar10"),
            """
            .00014 .936 .996 .00013 .956 .994 .00013 .989 .991
            .00139 .941 .993 .00139 .972 .991 .00139 .993 .990
            .00069 .942 .993 .00069 .970 .991 .00069 .993 .990
            .00637 .962 .991 .00637 .985 .990 .00637 .992 .989
            .00041 .976 .991 .00041 .947 .993 .00041 .976 .991
            .00193 .983 .990 .00194 .926 .993 .00194 .860 .995
            .00000 .976 .996 .00000 .962 .994 .00000 .991 .991
            .00014 .987 .996 .00013 .976 .994 .00013 .992 .995
            """,
        ),
    ),
    "cifar10": Setup(
        id="cifar10",
        train="cifar10-train",
        test=SetPart("cifar10-test", "cifar10_test"),
        validation=SetPart("cifar10-test", "cifar10_val"),
        ood={
            "cifar100": SetPart("cifar100-test", "cifar100_test"),
            "tiny imagenet": SetPart("tin-val", "tin_test_v1_0"),
            "mnist": SetPart("mnist-test", None),
        },
        ood_validation=SetPart("cifar100-test", "cifar100_val"),
        networks=("resnet20", "resnet56", "densenet100"),
        targets={"cifar100": 0.21, "tiny imagenet": 0.19, "mnist": 0.19},
        printed=_printed(
            ("cifar100", "tiny imagenet", "mnist"),
            """
            .00676 .871 .977 .00676 .887 .976 .00676 .899 .976
            .00984 .861 .973 .00984 .885 .971 .00984 .905 .971
            .01000 .851 .975 .01000 .864 .974 .00995 .915 .969
            .00856 .864 .973 .00856 .888 .971 .00856 .883 .972
            .00665 .896 .974 .00665 .914 .972 .00665 .916 .973
            .01232 .872 .972 .01232 .888 .971 .01236 .873 .974
            .00652 .896 .977 .00652 .914 .976 .00652 .916 .976
            .00676 .879 .977 .00676 .894 .976 .00676 .900 .976
            """,
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Splits:
    """Lists of rows, from a file, or none at all: then every part is its whole set."""

    lists: Mapping[str, IntArray]
    source: str | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str] | None) -> Splits:
        """Read the arrays of an .npz file; None means no lists."""
        if path is None:
            return cls({})
        try:
            with np.load(path, allow_pickle=False) as file:
                lists = {name: file[name].astype(np.int64) for name in file.files}
        except (OSError, ValueError, EOFError) as error:
            raise InvalidInputError(
                f"cannot read the splits {os.fspath(path)!r}: {error}"
            ) from None
        return cls(lists, Path(path).name)

    def has(self, part: SetPart) -> bool:
        """Tell whether the part has a list of its own."""
        return part.split is not None and part.split in self.lists

    def rows(self, part: SetPart, count: int) -> IntArray:
        """Return the rows of a part among the `count` images of its set."""
        if part.split is None or part.split not in self.lists:
            return np.arange(count)
        rows = self.lists[part.split]
        if len(rows) == 0 or rows.min() < 0 or rows.max() >= count:
            raise InvalidInputError(
                f"the list {part.split!r} does not fit the {count:,} images of {part.images!r}"
            )
        return rows
