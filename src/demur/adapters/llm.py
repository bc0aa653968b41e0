"""Logs of language models: answers, whether they are wrong, and doubts, as columns.

A question that can be answered is ID, one that cannot is OOD; the loss is a wrong answer. Each
reader returns columns, `answers_sample` makes a sample of those of both kinds of questions.
None of the packages that wrote the files is needed to read them, and nothing in them is run.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from demur.core.columns import listing, sample_from_columns
from demur.core.sample import Sample
from demur.errors import InvalidInputError, MissingExtraError
from demur.sources.archives import load_pickle, read_member
from demur.sources.files import check_input

__all__ = ["answers_sample", "read_inspect", "read_lm_eval", "read_polygraph", "read_uqlm"]

Columns = dict[str, npt.NDArray[Any]]
Path = str | os.PathLike[str]

LOSS, SET = "loss", "set"
# inspect-ai's letters: correct, partially correct, incorrect, no answer.
_GRADES = {"C": 0.0, "P": 0.5, "I": 1.0, "N": 1.0}


def answers_sample(
    answerable: Mapping[str, Any],
    unanswerable: Mapping[str, Any] | None,
    scores: Sequence[str],
    *,
    loss: str = LOSS,
    confidence: Iterable[str] = (),
) -> Sample:
    """Return a sample of answers to questions that can be answered and to some that cannot.

    Parameters
    ----------
    answerable
        Columns of the first, with their losses.
    unanswerable
        Columns of the others, of which only the scores are read; or columns by the name of each
        set; or None.
    scores
        The one or two columns to decide by, doubt in the answer first.
    confidence
        Those of the scores in which higher means more trustworthy.

    Examples
    --------
    >>> known = {"surprise": [0.1, 0.9], "distance": [0.2, 0.1], "loss": [0, 1]}
    >>> answers_sample(known, {"surprise": [0.5], "distance": [0.9]}, ["surprise", "distance"])
    Sample(n_id=2, n_ood=1, scores=2, ood_sets=['unanswerable'])
    """
    sets = _named_sets(unanswerable)
    for name, columns in {"answerable": answerable, **sets}.items():
        needed = [*scores, *([loss] if name == "answerable" else [])]
        lacking = [column for column in needed if column not in columns]
        if lacking:
            there = listing([str(column) for column in columns])
            raise InvalidInputError(f"{name} has no column {lacking[0]!r}; it has {there}")
    counts = [len(columns[scores[0]]) for columns in (answerable, *sets.values())]
    table: Columns = {
        score: np.concatenate(
            [np.asarray(columns[score], float) for columns in (answerable, *sets.values())]
        )
        for score in scores
    }
    losses = np.full(sum(counts), np.nan)
    losses[: counts[0]] = np.asarray(answerable[loss], float)
    table[LOSS] = losses
    table[SET] = np.repeat(["id", *sets], counts)
    return sample_from_columns(table, list(scores), loss=LOSS, ood=SET, confidence=list(confidence))


def _named_sets(unanswerable: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    if unanswerable is None:
        return {}
    if all(isinstance(value, Mapping) for value in unanswerable.values()):
        return dict(unanswerable)
    return {"unanswerable": unanswerable}


def read_lm_eval(path: Path, *, metric: str, filter: str | None = None) -> Columns:
    """Return the columns of ``samples_<task>_<date>.jsonl`` of lm-evaluation-harness.

    ``doc_id``; ``loss``, one minus the metric; numbers of ``doc`` by their names. Of questions
    with given answers also two doubts: ``msp``, one minus the largest probability among the
    choices, and ``surprise``, minus the log probability of the most probable one.

    Parameters
    ----------
    metric
        The metric to take, between 0 and 1, such as ``"acc"`` or ``"exact_match"``.
    filter
        Which of the task's filters counts, if it has several: the file then holds every answer
        once for each.

    Examples
    --------
    >>> import json, tempfile
    >>> line = {"doc_id": 0, "doc": {"q": "?"}, "acc": 1.0,
    ...         "filtered_resps": [["-0.5", "False"], ["-2.5", "False"]]}
    >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as file:
    ...     _ = file.write(json.dumps(line))
    >>> columns = read_lm_eval(file.name, metric="acc")
    >>> columns["loss"].tolist(), columns["msp"].round(4).tolist(), columns["surprise"].tolist()
    ([0.0], [0.1192], [0.5])
    """
    rows = []
    for number, line in enumerate(_filtered(path, filter)):
        if metric not in line:
            metrics = line.get("metrics") or [k for k, v in line.items() if _is_number(v)]
            raise InvalidInputError(
                f"{os.fspath(path)!r}, row {number}: no metric {metric!r}; there are "
                f"{listing([str(one) for one in metrics])}"
            )
        row = _numbers(line.get("doc"))
        row |= {"doc_id": line.get("doc_id", number), LOSS: 1 - _unit(path, number, line[metric])}
        likelihoods = _log_likelihoods(line)
        if likelihoods is not None:
            row |= _choice_doubts(likelihoods)
        rows.append(row)
    return _table(path, rows)


def _filtered(path: Path, wanted: str | None) -> list[dict[str, Any]]:
    """Return the lines of one filter: each holds the same answers, read in another way."""
    lines = list(_json_lines(path))
    names = list(dict.fromkeys(str(line.get("filter")) for line in lines))
    if wanted is None and len(names) > 1:
        raise InvalidInputError(
            f"{os.fspath(path)!r} has every answer by several filters, {listing(names)}: say "
            "which by filter="
        )
    if wanted is not None and lines and wanted not in names:
        raise InvalidInputError(
            f"{os.fspath(path)!r} has no filter {wanted!r}; there is {listing(names)}"
        )
    return [line for line in lines if wanted in (None, str(line.get("filter")))]


def _log_likelihoods(line: Mapping[str, Any]) -> npt.NDArray[np.float64] | None:
    """Return the log probability of each choice, of answers that are (number, is greedy) each."""
    answers = line.get("filtered_resps")
    if not isinstance(answers, list) or len(answers) < 2:
        return None
    if "acc_mutual_info" in (line.get("metrics") or ()):
        # The second half are the choices without the question.
        answers = answers[: len(answers) // 2]
    try:
        return np.array([float(answer[0]) for answer in answers])
    except (TypeError, ValueError, IndexError, KeyError):
        return None


def _choice_doubts(likelihoods: npt.NDArray[np.float64]) -> dict[str, float]:
    best = int(np.argmax(likelihoods))
    odds = np.exp(likelihoods - likelihoods[best])
    # The other terms summed, so that certainty does not round to 1.
    others = float(np.delete(odds, best).sum())
    return {"msp": others / (1 + others), "surprise": -float(likelihoods[best])}


def read_inspect(
    path: Path, *, scorer: str | None = None, unscored: Literal["refuse", "skip"] = "refuse"
) -> Columns:
    """Return the columns of a log of inspect-ai, ``.eval`` or ``.json``.

    ``id``, ``epoch``; ``loss``, from the scorer's value (C, P, I and N are 0, .5, 1 and 1, a
    number or a truth value is one minus itself); numbers of the metadata of samples and scores,
    by their names. Rows of one id in several epochs are not independent.

    Parameters
    ----------
    scorer
        Which scorer counts, if there are several.
    unscored
        What to do about samples without any score, which ended in an error: refuse the log, or
        leave them out.

    Examples
    --------
    >>> import json, tempfile
    >>> sample = {"id": 1, "epoch": 1, "metadata": {"distance": 0.3},
    ...           "scores": {"match": {"value": "C", "metadata": {"surprise": 0.1}}}}
    >>> with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
    ...     _ = file.write(json.dumps({"samples": [sample]}))
    >>> {name: column.tolist() for name, column in read_inspect(file.name).items()}
    {'distance': [0.3], 'surprise': [0.1], 'id': ['1'], 'epoch': [1.0], 'loss': [0.0]}
    """
    if unscored not in ("refuse", "skip"):
        raise InvalidInputError(f"unscored must be 'refuse' or 'skip', got {unscored!r}")
    rows = []
    for number, sample in enumerate(_inspect_samples(path)):
        scores = sample.get("scores") or {}
        if scores:
            score = scores[_scorer(path, sample, scorer)]
            rows.append(
                {
                    **_numbers(sample.get("metadata")),
                    **_numbers(score.get("metadata")),
                    "id": str(sample.get("id", number)),
                    "epoch": float(sample.get("epoch", 1)),
                    LOSS: _inspect_loss(path, number, score.get("value")),
                }
            )
        elif unscored == "refuse":
            error = sample.get("error") or {}
            raise InvalidInputError(
                f"{os.fspath(path)!r}, sample {sample.get('id')!r}: no score, "
                f"{error.get('message', 'and no error either')}; run it again, or leave out such "
                "samples by unscored='skip'"
            )
    return _table(path, rows)


def _scorer(path: Path, sample: Mapping[str, Any], wanted: str | None) -> str:
    """Return the name of the score that counts."""
    names = [str(name) for name in sample["scores"]]
    if wanted is None and len(names) > 1:
        raise InvalidInputError(
            f"{os.fspath(path)!r} has several scorers, {listing(names)}: say which by scorer="
        )
    if wanted is not None and wanted not in names:
        raise InvalidInputError(
            f"{os.fspath(path)!r}, sample {sample.get('id')!r}: no score of {wanted!r}; there "
            f"is {listing(names)}"
        )
    return wanted or names[0]


def _inspect_samples(path: Path) -> Iterator[dict[str, Any]]:
    check_input(path)
    if not zipfile.is_zipfile(path):
        log = _parsed(path, "".join(_text_lines(path)))
        yield from log.get("samples") or []
        return
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.startswith("samples/"):
                yield _parsed(path, _member(path, archive, name))


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> str:
    try:
        return read_member(archive, name).decode("utf-8")
    except MissingExtraError:
        raise
    except Exception as error:
        # A damaged archive can fail in any way at all.
        raise InvalidInputError(f"cannot read {os.fspath(path)!r}: {name}: {error}") from None


def _inspect_loss(path: Path, number: int, value: Any) -> float:
    if isinstance(value, str) and value in _GRADES:
        return _GRADES[value]
    return 1 - _unit(path, number, value)


def read_polygraph(path: Path) -> Columns:
    """Return the columns of what ``UEManager.save`` of lm-polygraph writes.

    Estimates of uncertainty and metrics of the generated answers, one a sequence, by their names;
    higher estimates mean more doubt. The file is a pickle within a zip archive; anything in it
    but numbers, text and arrays is refused, since loading it would run code.

    Examples
    --------
    >>> import tempfile, torch
    >>> stored = {"metrics": {}, "stats": {},
    ...           "gen_metrics": {("sequence", "Accuracy"): [1.0, 0.0]},
    ...           "estimations": {("sequence", "Perplexity"): [0.2, 1.4]}}
    >>> with tempfile.NamedTemporaryFile(suffix=".man", delete=False) as file:
    ...     torch.save(stored, file)
    >>> {name: column.tolist() for name, column in read_polygraph(file.name).items()}
    {'Accuracy': [1.0, 0.0], 'Perplexity': [0.2, 1.4]}
    """
    stored = _torch_pickle(path)
    columns: Columns = {}
    for part in ("gen_metrics", "estimations"):
        for key, values in (stored.get(part) or {}).items():
            if isinstance(key, tuple) and key[0] == "sequence":
                columns[key[1]] = np.asarray(values, dtype=np.float64).ravel()
    lengths = {name: len(column) for name, column in columns.items()}
    if not columns or len(set(lengths.values())) > 1:
        raise InvalidInputError(
            f"{os.fspath(path)!r} has no numbers a sequence in gen_metrics and estimations, or of "
            f"different lengths: {lengths}"
        )
    return columns


def _torch_pickle(path: Path) -> dict[str, Any]:
    check_input(path)
    shown = os.fspath(path)
    try:
        with zipfile.ZipFile(path) as archive:
            (member,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
            stored = load_pickle(io.BytesIO(archive.read(member)))
    except InvalidInputError as error:
        raise InvalidInputError(f"{shown!r} is refused: {error}") from None
    except Exception as error:
        # A damaged file can fail in any way at all.
        raise InvalidInputError(
            f"cannot read {shown!r} as a file of torch.save: {type(error).__name__}: {error}"
        ) from None
    if not isinstance(stored, dict):
        raise InvalidInputError(f"{shown!r} holds no dict, so it is no file of lm-polygraph")
    return stored


def read_uqlm(result: Any) -> Columns:
    """Return the columns of a result of uqlm, or of the frame that its ``to_df`` makes.

    Its scores are confidences between 0 and 1: name them in `confidence` of `answers_sample`. It
    does not know which answers are right; add a column ``loss``.

    Parameters
    ----------
    result
        A ``UQResult``, or any data frame.

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame({"response": ["a", "b"], "semantic_negentropy": [0.9, 0.2]})
    >>> {name: column.tolist() for name, column in read_uqlm(frame).items()}
    {'response': ['a', 'b'], 'semantic_negentropy': [0.9, 0.2]}
    """
    import narwhals.stable.v2 as nw

    frame = result.to_df() if callable(getattr(result, "to_df", None)) else result
    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise InvalidInputError(
            f"a result of uqlm or a data frame is needed, got {type(result).__name__}"
        ) from None
    return {name: table[name].to_numpy() for name in table.columns}


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    check_input(path)
    for line in _text_lines(path):
        if line.strip():
            yield _parsed(path, line)


def _text_lines(path: Path) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"cannot read {os.fspath(path)!r}: it is neither text nor a whole archive ({error})"
        ) from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"cannot read {os.fspath(path)!r} as JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInputError(
            f"{os.fspath(path)!r} holds a {type(found).__name__}, not an object"
        )
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numbers(values: Any) -> dict[str, float]:
    """Return the numbers among the values of an object."""
    found = values.items() if isinstance(values, Mapping) else ()
    return {name: float(value) for name, value in found if _is_number(value)}


def _unit(path: Path, number: int, value: Any) -> float:
    """Return a grade between 0 and 1."""
    if isinstance(value, bool) or _is_number(value):
        grade = float(value)
        if 0 <= grade <= 1 and not math.isnan(grade):
            return grade
    raise InvalidInputError(
        f"{os.fspath(path)!r}, row {number}: a grade must be a number from 0 to 1, got {value!r}"
    )


def _table(path: Path, rows: list[dict[str, Any]]) -> Columns:
    """Return columns of rows; what some rows lack is missing there."""
    if not rows:
        raise InvalidInputError(f"{os.fspath(path)!r} holds no answers")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, math.nan) for row in rows]) for name in names}


def __dir__() -> list[str]:
    return __all__
