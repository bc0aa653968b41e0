"""OpenOOD's score files: a folder with one NPZ per data set, or one pickle per method.

OpenOOD stores confidences, where higher means ID; samples keep them as they are.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from demur.core.columns import guess, listing, sample_from_columns
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.sources.archives import npz_columns, npz_names, read_pickle

__all__ = ["openood_columns", "sample_from_openood"]

PREDICTION, LABEL, SET = "prediction", "label", "set"
"""Names of the columns beside the scores."""

ID = "id"
"""Value of the column `SET` on ID rows; also the key of the ID rows while reading."""

Paths = Mapping[str, str | os.PathLike[str]]


class _MethodRows(NamedTuple):
    """One data set under one method."""

    prediction: npt.NDArray[Any]
    confidence: npt.NDArray[Any]
    label: npt.NDArray[Any]


def sample_from_openood(
    paths: Paths, *, id_set: str | None = None, ood_sets: Sequence[str] | None = None
) -> Sample:
    """Return a sample from the score files of one or two methods run on the same data.

    Parameters
    ----------
    paths
        For each score a name and a path: a pickle ``scores/<method>.pkl``, or a folder with
        one ``<data set>.npz`` for every data set. Pickles are read without running them.
    id_set
        Which NPZ file of a folder holds the ID rows; pickles know it.
    ood_sets
        Which OOD sets to read, all by default.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.savez(folder / "cifar10.npz", pred=[3, 5], conf=[0.9, 0.4], label=[3, 3])
    >>> np.savez(folder / "svhn.npz", pred=[1], conf=[0.2], label=[-1])
    >>> sample = sample_from_openood({"msp": folder}, id_set="cifar10")
    >>> sample, sample.id_scores[:, 0].tolist(), sample.id_loss.tolist()
    (Sample(n_id=2, n_ood=1, scores=1, ood_sets=['svhn']), [0.9, 0.4], [0.0, 1.0])
    """
    columns = openood_columns(paths, id_set=id_set, ood_sets=ood_sets)
    return sample_from_columns(
        columns, list(paths), label=LABEL, prediction=PREDICTION, ood=SET, confidence=list(paths)
    )


def openood_columns(
    paths: Paths, *, id_set: str | None = None, ood_sets: Sequence[str] | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Return one column of raw confidences per score, and prediction, label and set.

    The predictions are those of the first method: some methods change the network, but the
    classifier whose answers are accepted or rejected is one.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.savez(folder / "cifar10.npz", pred=[3, 5], conf=[0.9, 0.4], label=[3, 4])
    >>> np.savez(folder / "svhn.npz", pred=[3], conf=[0.2], label=[-1])
    >>> columns = openood_columns({"msp": folder}, id_set="cifar10")
    >>> list(columns), columns["set"].tolist()
    (['msp', 'prediction', 'label', 'set'], ['id', 'id', 'svhn'])
    """
    reserved = [name for name in paths if name in (PREDICTION, LABEL, SET)]
    if reserved:
        raise InvalidInputError(f"a score cannot be called {reserved[0]!r}")
    methods = {name: _read(path, id_set, ood_sets) for name, path in paths.items()}
    first_name, first = next(iter(methods.items()))
    for name, sets in methods.items():
        _check_same_rows(first_name, first, name, sets)
    every = list(first)
    columns = {
        name: np.concatenate([sets[key].confidence for key in every])
        for name, sets in methods.items()
    }
    columns[PREDICTION] = np.concatenate([first[key].prediction for key in every])
    columns[LABEL] = np.concatenate([first[key].label for key in every])
    columns[SET] = np.repeat(every, [len(first[key].label) for key in every])
    return columns


def _read(
    path: str | os.PathLike[str], id_set: str | None, ood_sets: Sequence[str] | None
) -> dict[str, _MethodRows]:
    """Return the data sets of one method, the ID rows first."""
    target = Path(path)
    if target.is_dir():
        files = _folder(target, id_set)
        wanted = _chosen(target, list(files)[1:], ood_sets)
        return {key: _npz_rows(files[key]) for key in [ID, *wanted]}
    if target.suffix.lower() == ".pkl":
        stored = _pickle(target)
        wanted = _chosen(target, list(stored)[1:], ood_sets)
        return {key: _checked(target, key, stored[key]) for key in [ID, *wanted]}
    raise InvalidInputError(
        f"{str(target)!r} is neither a folder of NPZ files nor a .pkl file"
        + ("" if target.exists() else "; it does not exist")
    )


def _chosen(path: Path, names: list[str], wanted: Sequence[str] | None) -> list[str]:
    """Return the OOD sets to read, in order."""
    for name in wanted or ():
        if name not in names:
            raise InvalidInputError(
                f"{str(path)!r} has no OOD set {name!r}; {guess(name, names)}"
                f"there are {listing(names)}"
            )
    return sorted(names if wanted is None else wanted)


def _folder(folder: Path, id_set: str | None) -> dict[str, Path]:
    """Return the file of each data set, that of the ID set first."""
    files = {file.stem: file for file in sorted(folder.glob("*.npz"))}
    if not files:
        raise InvalidInputError(f"the folder {str(folder)!r} holds no .npz file")
    if id_set not in files:
        wanted = "say which set is ID" if id_set is None else f"there is no {id_set!r}"
        raise InvalidInputError(
            f"{str(folder)!r}: {wanted}; {guess(id_set or '', files)}"
            f"the sets are {listing(list(files))}"
        )
    found = {ID: files.pop(str(id_set))}
    if ID in files:
        raise InvalidInputError(f"{str(folder)!r}: an OOD set cannot be called {ID!r}")
    return found | files


def _npz_rows(path: Path) -> _MethodRows:
    missing = {"pred", "conf", "label"} - set(npz_names(path))
    if missing:
        raise InvalidInputError(
            f"{str(path)!r} is no OpenOOD score file: it has no {listing(sorted(missing))}"
        )
    columns = npz_columns(path, ["pred", "conf", "label"])
    return _MethodRows(columns["pred"], columns["conf"], columns["label"])


def _pickle(path: Path) -> dict[str, Any]:
    """Return what is stored for each data set, the ID set first."""
    content = read_pickle(path)
    try:
        stored = {ID: content["id"]["test"]}
        for split in ("near", "far"):
            # A set that was not evaluated is None.
            sets = content["ood"].get(split) or {}
            stored |= {str(key): rows for key, rows in sets.items() if rows is not None}
    except (TypeError, KeyError, AttributeError):
        raise InvalidInputError(
            f"{str(path)!r} is no OpenOOD score file: it has no ['id']['test'] and ['ood']"
        ) from None
    return stored


def _checked(path: Path, name: str, stored: Any) -> _MethodRows:
    flat = isinstance(stored, list) and all(map(_is_flat, stored))
    arrays = [np.asarray(a) for a in stored] if flat else []
    shapes = {array.shape for array in arrays}
    numeric = all(array.dtype.kind in "biuf" for array in arrays)
    if len(arrays) != 3 or len(shapes) != 1 or len(next(iter(shapes))) != 1 or not numeric:
        raise InvalidInputError(
            f"{str(path)!r}: {name!r} is not three arrays of one length (pred, conf, label)"
        )
    return _MethodRows(*arrays)


def _is_flat(values: Any) -> bool:
    """Tell an array or a list of numbers from nested lists, which may have no end."""
    if isinstance(values, list):
        return not any(isinstance(value, (list, dict)) for value in values)
    return isinstance(values, np.ndarray)


def _check_same_rows(
    first_name: str, first: Mapping[str, _MethodRows], name: str, other: Mapping[str, _MethodRows]
) -> None:
    """Refuse score files that are not about the same rows; tell of other predictions."""
    if list(first) != list(other):
        raise InvalidInputError(
            f"{first_name!r} has the sets {listing(list(first))}, "
            f"{name!r} has {listing(list(other))}: choose common OOD sets"
        )
    for key in first:
        if not np.array_equal(first[key].label, other[key].label):
            raise InvalidInputError(
                f"{first_name!r} and {name!r} have different labels on {key!r}: "
                "they were not computed on the same rows in the same order"
            )
    changed = int(np.sum(first[ID].prediction != other[ID].prediction))
    if changed:
        warnings.warn(
            f"{name!r} predicts other classes than {first_name!r} on {changed} ID rows; "
            f"the predictions of {first_name!r} are used",
            stacklevel=4,
        )


def __dir__() -> list[str]:
    return __all__
