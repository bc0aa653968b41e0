"""One decision a row, whoever takes it: every path decides as plain arithmetic does.

Random rules meet random tables: permuted, renamed and extra columns, confidences, columns of every
type, and rows that are missing, infinite, huge or just on the threshold. A longer campaign:
DEMUR_CASES=20000 pytest tests/property/test_same_decision.py
"""

import json
import math
import os
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from click.testing import CliRunner
from sklearn.dummy import DummyClassifier

import demur as dm
from demur.adapters.sklearn import SelectiveClassifier
from demur.adapters.torch import Decision
from demur.cli.commands.apply import command as apply_command

CASES = int(os.environ.get("DEMUR_CASES", "1200")) // 60
ROWS = 40
NAMES = ["msp", "knn", "a b", 'quo"te', "Zeile", "accept_", "x.y", "0"]
SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1e308, -1e308, 5e-324, 0.1, 0.3]
KINDS = ["double", "float", "int", "nullable", "decimal"]


def reference(rule, row):
    """Decide as the page about rule files says, in plain Python."""
    total = None
    for weight, score in zip(rule.direction, row, strict=True):
        if score == math.inf:
            return False
        if weight == 0:
            continue
        if math.isnan(score) or score == -math.inf:
            return False
        total = weight * score if total is None else total + weight * score
    if rule.threshold == -math.inf:
        return False
    return total <= rule.threshold if rule.tau else total < rule.threshold


def random_column(rng, kind):
    """Return a column of an Arrow table, and the doubles that its values are."""
    if kind == "int":
        values = rng.integers(-3, 4, ROWS)
        return pa.array(values), values.astype(float)
    if kind == "nullable":
        values = [None if rng.random() < 0.1 else int(v) for v in rng.integers(-3, 4, ROWS)]
        return pa.array(values, pa.int64()), np.array(
            [math.nan if v is None else v for v in values]
        )
    if kind == "decimal":
        values = [Decimal(int(v)).scaleb(-3) for v in rng.integers(-3000, 3000, ROWS)]
        return pa.array(values, pa.decimal128(18, 3)), np.array([float(v) for v in values])
    values = np.where(rng.random(ROWS) < 0.5, rng.integers(-8, 8, ROWS) / 4, rng.normal(size=ROWS))
    special = rng.random(ROWS) < 0.15
    values[special] = rng.choice(SPECIAL, special.sum())
    if kind == "float":
        with np.errstate(over="ignore"):
            values = values.astype(np.float32)
    return pa.array(values), values.astype(float)


def random_direction(rng, count):
    if count == 1:
        return (float(rng.choice([1.0, -1.0, 0.7])),)
    axes = [(1.0, 0.0), (0.0, 1.0), (0.6, 0.8), (-0.6, 0.8), (0.0, -1.0), (9.0, -9.0)]
    angle = rng.uniform(-1.5, 1.5)
    axes.append((math.cos(angle), math.sin(angle)))
    return axes[rng.integers(len(axes))]


class Case:
    """A rule, a table with its columns in some order, and what is to be decided."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(1, 3))
        self.names = tuple(str(name) for name in rng.permutation(NAMES)[:count])
        columns, values = zip(
            *(random_column(rng, str(rng.choice(KINDS))) for _ in range(count)), strict=True
        )
        self.scores = np.column_stack(values)
        direction = random_direction(rng, count)
        self.confidence = tuple(n for n, w in zip(self.names, direction, strict=True) if w < 0)
        with np.errstate(all="ignore"):
            sums = sum(w * c for w, c in zip(direction, self.scores.T, strict=True))
        known = sums[np.isfinite(sums)]
        threshold = float(rng.choice(known)) if len(known) and rng.random() < 0.8 else 0.25
        if rng.random() < 0.05:
            threshold = -math.inf
        tau = float(rng.integers(0, 2))
        self.rule = dm.Rule(direction, threshold, tau, self.names, self.confidence)
        self.expected = np.array([reference(self.rule, row) for row in self.scores.tolist()])
        others = {
            "row": pa.array(range(ROWS)),
            "text": pa.array(["x"] * ROWS),
            "loss": pa.array([0.0] * ROWS),
        }
        table = {**dict(zip(self.names, columns, strict=True)), **others}
        order = [str(name) for name in rng.permutation(list(table))]
        self.table = pa.table({name: table[name] for name in order})
        needed = np.array(direction) != 0
        self.lacking = (~np.isfinite(self.scores) & (self.scores != math.inf))[:, needed].any(1)

    def check(self, decided):
        np.testing.assert_array_equal(np.asarray(decided, bool), self.expected, strict=False)


@pytest.fixture(scope="module", params=range(CASES))
def case(request):
    return Case(request.param)


def nullable(kind):
    return {pa.int64(): pd.Int64Dtype(), pa.float64(): pd.Float64Dtype()}.get(kind)


def test_arrays_frames_and_mappings(case):
    columns = dict(zip(case.names, case.scores.T, strict=True))
    frames = {
        "array": case.scores,
        "list": case.scores.tolist(),
        "dict": {"text": ["x"] * ROWS, **dict(reversed(columns.items()))},
        "pandas": case.table.to_pandas(),
        "pandas, nullable": case.table.to_pandas(types_mapper=nullable),
        "pandas, arrow": case.table.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": pl.from_arrow(case.table),
        "polars, lazy": pl.from_arrow(case.table).lazy(),
        "pyarrow": case.table,
    }
    for kind, data in frames.items():
        try:
            case.check(case.rule.accept(data, missing="reject"))
        except AssertionError as error:
            raise AssertionError(f"{kind}: {error}") from None
        if case.lacking.any():
            with pytest.raises(dm.InvalidInputError):
                case.rule.accept(data)
        else:
            case.check(case.rule.accept(data))
        case.check(case.rule.accept_probability(data, missing="reject"))


def test_one_row_at_a_time(case):
    for row, scores in enumerate(case.scores[:12].tolist()):
        named = {"text": "x", **dict(zip(case.names[::-1], scores[::-1], strict=True))}
        for one in (named, scores):
            assert case.rule.accept_one(one, missing="reject") == case.expected[row]


def test_saved_rules_and_older_files(case, tmp_path):
    case.rule.save(tmp_path / "rule.json")
    loaded = dm.Rule.load(tmp_path / "rule.json")
    assert loaded == case.rule
    data = json.loads(case.rule.to_json())
    del data["confidence"]
    older = dm.Rule.from_json(json.dumps(data | {"version": 1}))
    for rule in (loaded, older):
        case.check(rule.accept(case.table, missing="reject"))


def write(case, path, names):
    table = case.table.rename_columns([names.get(n, n) for n in case.table.column_names])
    if path.suffix == ".csv":
        # The shortest text of a single stands for another double.
        kinds = [pa.float64() if kind == pa.float32() else kind for kind in table.schema.types]
        pa.csv.write_csv(table.cast(pa.schema(zip(table.column_names, kinds, strict=True))), path)
    elif path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        scores = dict(zip(case.names, case.scores.T, strict=True))
        np.savez(path, row=np.arange(ROWS), **{names.get(n, n): v for n, v in scores.items()})


def read(path):
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return archive["decided"]
    if path.suffix == ".parquet":
        return pa.parquet.read_table(path)["decided"].to_numpy()
    return pl.read_csv(path)["decided"].to_numpy()


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_files_and_the_command_line(case, ending, tmp_path):
    case.rule.save(tmp_path / "rule.json")
    renamed = {name: f"other{k}" for k, name in enumerate(case.names)}
    for names, options in (({}, []), (renamed, ["--scores", ",".join(renamed.values())])):
        data, out = tmp_path / f"data{len(names)}.{ending}", tmp_path / f"out{len(names)}.{ending}"
        write(case, data, names)
        given = [str(tmp_path / "rule.json"), str(data), "-o", str(out), "--column", "decided"]
        result = CliRunner().invoke(apply_command, [*given, "--missing", "reject", *options])
        if result.exception is not None:
            assert isinstance(result.exception, dm.DemurError), result.output
            continue
        case.check(read(out))


def test_sql(case):
    with duckdb.connect() as connection:
        for names in (None, [f"other{k}" for k in range(len(case.names))]):
            table = case.table
            if names is not None:
                mapped = dict(zip(case.names, names, strict=True))
                table = table.rename_columns([mapped.get(n, n) for n in table.column_names])
            sql = case.rule.to_sql(names, dialect="duckdb")
            found = connection.from_arrow(table).project(f'{sql} AS decided, "row"')
            decided = found.order('"row"').fetchnumpy()["decided"]
            case.check(decided)


def test_torch(case):
    case.check(Decision(case.rule)(torch.from_numpy(case.scores)).numpy())


def first_score(estimator, X):
    return np.asarray(X)[:, 0]


def last_score(estimator, X):
    return np.asarray(X)[:, 1]


@pytest.mark.filterwarnings("ignore::demur.LikelyMistakeWarning")
def test_scikit_learn(case):
    k = case.scores.shape[1]
    X = np.linspace(0, 1, 40)[:, None].repeat(2, 1)
    classifier = SelectiveClassifier(
        DummyClassifier(),
        model=dm.TprFprModel(0.5, 0.9),
        risk_score=first_score,
        ood_score=last_score if k == 2 else None,
        missing="reject",
    ).fit(X, np.arange(40) % 2, X_ood=X + 1)
    classifier.rule_ = case.rule
    case.check(classifier.accept(case.scores))


def sources(table):
    yield "frames", table
    yield "pandas", table.to_pandas()
    yield "polars", pl.from_arrow(table).lazy()
    yield "duckdb", duckdb.from_arrow(table)


def test_sources_count_the_same_rows(case):
    """Rows that cannot be tuned on are left out; the others are decided alike in every engine."""
    usable = ~(np.isnan(case.scores) | (case.scores == -math.inf)).any(axis=1)
    for column, name in enumerate(case.names):
        if name in case.confidence:
            usable &= np.isfinite(case.scores[:, column])
    if not usable.any():
        pytest.skip("no row has a score")
    # Engines cast decimals to within an ulp: here they are doubles.
    columns = dict(zip(case.names, case.scores.T, strict=True))
    decimal = [n for n in case.names if pa.types.is_decimal(case.table[n].type)]
    table = case.table
    for name in decimal:
        table = table.set_column(table.column_names.index(name), name, pa.array(columns[name]))
    table = table.filter(pa.array(usable))
    kept = [row for row in case.table["row"].to_pylist() if usable[row]]
    for kind, data in sources(table):
        source = dm.open_source(data, case.names, loss="loss", confidence=case.confidence)
        points = dm.evaluate(case.rule, source, by="row")
        decided = [points[row].accepted_id == 1 for row in kept]
        assert decided == case.expected[usable].tolist(), kind
    whole = dm.Sample.from_frame(table, case.names, loss="loss", confidence=case.confidence)
    assert dm.evaluate(case.rule, whole).accepted_id == case.expected[usable].sum()
