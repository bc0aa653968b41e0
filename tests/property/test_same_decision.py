"""One decision a row, whoever takes it: every path decides as plain arithmetic does.

Random rules meet random tables: permuted, renamed and extra columns, confidences, columns of every
type, and rows that are missing, infinite, huge or just on the threshold. A longer campaign:
DEMUR_CASES=20000 pytest tests/property/test_same_decision.py
"""

import itertools
import json
import math
import os
from dataclasses import replace
from decimal import Decimal

import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch
from click.testing import CliRunner
from engines import need_java, spark_session, without_pandas_warning
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
    if isinstance(rule, dm.BoxRule):
        return reference_box(rule, row)
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


def reference_box(rule, row):
    """Decide as the page says of boxes."""
    if math.inf in row or rule.threshold == -math.inf:
        return False
    limited = zip(rule.direction, rule.limits, row, strict=True)
    return all(
        score > -math.inf and (score <= limit if sign > 0 else score >= limit)
        for sign, limit, score in limited
        if sign
    )


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
        self.seed = seed
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
        if rng.random() < 0.4:
            self.rule = self.random_box(rng, direction)
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

    def random_box(self, rng, direction):
        """Return a box with the signs of a direction, and limits that some row has."""
        limits = [rng.choice([*c[np.isfinite(c)], 0.25]) for c in self.scores.T]
        if rng.random() < 0.05:
            limits[0] = -math.inf if direction[0] >= 0 else math.inf
        signs = tuple(float(np.sign(w)) for w in direction)
        return dm.BoxRule(signs, self.names, self.confidence, limits=limits)

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
    case.check(loaded.accept(case.table, missing="reject"))
    if isinstance(loaded, dm.BoxRule):
        return  # there were none in older files
    data = json.loads(case.rule.to_json())
    del data["confidence"]
    older = dm.Rule.from_json(json.dumps(data | {"version": 1}))
    case.check(older.accept(case.table, missing="reject"))


def write(case, path, names):
    table = case.table.rename_columns([names.get(n, n) for n in case.table.column_names])
    if path.suffix == ".csv":
        # The shortest text of a single stands for another double.
        kinds = [pa.float64() if kind == pa.float32() else kind for kind in table.schema.types]
        pa.csv.write_csv(table.cast(pa.schema(zip(table.column_names, kinds, strict=True))), path)
    elif path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
    elif path.suffix == ".jsonl":
        # JSON has no infinities; one that is missing is rejected like a row without a score.
        scores = dict(zip(case.names, case.scores.T.tolist(), strict=True))
        columns = {n: scores.get(n, [0] * ROWS) for n in case.table.column_names}
        rows = zip(*columns.values(), strict=True)
        lines = [dict(zip([names.get(n, n) for n in columns], row, strict=True)) for row in rows]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        scores = dict(zip(case.names, case.scores.T, strict=True))
        np.savez(path, row=np.arange(ROWS), **{names.get(n, n): v for n, v in scores.items()})


def read(path):
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return archive["decided"]
    if path.suffix == ".parquet":
        return pa.parquet.read_table(path)["decided"].to_numpy()
    if path.suffix == ".arrow":
        return pa.feather.read_table(path)["decided"].to_numpy()
    if path.suffix == ".jsonl":
        return np.array([json.loads(line)["decided"] for line in path.read_text().splitlines()])
    return pl.read_csv(path)["decided"].to_numpy()


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz", "arrow", "jsonl"])
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


def without_unneeded(case):
    """Return the table and the scores without a column of weight 0, which also is not infinite."""
    spare = [n for n, w in zip(case.names, case.rule.direction, strict=True) if w == 0]
    kept = [k for k, name in enumerate(case.names) if name not in spare]
    needed = case.rule.of_columns(kept)
    expected = [reference(needed, row) for row in case.scores[:, kept].tolist()]
    return spare, case.table.drop_columns(spare), np.array(expected)


@pytest.mark.parametrize("number", range(CASES // 4))
def test_a_column_of_weight_zero_is_needed_nowhere(number, tmp_path):
    cases = (Case(seed) for seed in itertools.count() if seed % (CASES // 4 or 1) == number)
    case = next(case for case in cases if 0 in case.rule.direction)
    spare, table, expected = without_unneeded(case)
    frames = [table, table.to_pandas(), pl.from_arrow(table), pl.from_arrow(table).lazy()]
    for data in [*frames, {n: table[n].to_numpy(zero_copy_only=False) for n in table.column_names}]:
        np.testing.assert_array_equal(case.rule.accept(data, missing="reject"), expected)
    names = [None if name in spare else name for name in case.names]
    with duckdb.connect() as connection:
        found = connection.from_arrow(table).project(f'{case.rule.to_sql(names)} AS d, "row"')
        assert found.order('"row"').fetchnumpy()["d"].tolist() == expected.tolist()
    case.rule.save(tmp_path / "rule.json")
    pa.parquet.write_table(table, tmp_path / "data.parquet")
    out = tmp_path / "out.parquet"
    given = [str(tmp_path / "rule.json"), str(tmp_path / "data.parquet"), "-o", str(out)]
    options = ["--column", "decided", "--missing", "reject"]
    CliRunner().invoke(apply_command, [*given, *options], catch_exceptions=False)
    np.testing.assert_array_equal(read(out), expected)


def test_a_score_that_is_text_somewhere_is_refused_everywhere(case, tmp_path):
    """One word among the numbers, as in real files; no path guesses."""
    name = case.names[int(np.argmax(np.abs(case.rule.direction)))]
    mixed = [*map(str, case.scores[1:, case.names.index(name)].tolist()), "unknown"]
    objects = [*case.scores[1:, case.names.index(name)].tolist(), "unknown"]
    table = case.table.set_column(
        case.table.column_names.index(name), name, pa.array(mixed, pa.string())
    )
    pandas = case.table.to_pandas().assign(**{name: pd.Series(objects, dtype=object)})
    columns = {n: case.table[n].to_pylist() for n in case.names} | {name: objects}
    lazy = pl.from_arrow(table).lazy()
    for data in (table, pandas, columns, lazy, np.array(list(columns.values()), object).T):
        for missing in ("raise", "reject"):
            with pytest.raises(dm.InvalidInputError):
                case.rule.accept(data, missing=missing)
    for data in (table, pandas, lazy, duckdb.from_arrow(table)):
        with pytest.raises(dm.InvalidInputError):
            dm.open_source(data, case.names, loss="loss").overview()
    case.rule.save(tmp_path / "rule.json")
    for ending in ("csv", "parquet", "jsonl"):
        path, out = tmp_path / f"data.{ending}", tmp_path / f"out.{ending}"
        if ending == "csv":
            pa.csv.write_csv(table, path)
        elif ending == "parquet":
            pa.parquet.write_table(table, path)
        else:
            rows = table.select([*case.names]).to_pylist()
            path.write_text("".join(json.dumps(row, default=float) + "\n" for row in rows))
        given = [str(tmp_path / "rule.json"), str(path), "-o", str(out), "--missing", "reject"]
        result = CliRunner().invoke(apply_command, given)
        assert isinstance(result.exception, dm.InvalidInputError), result.output
        assert not out.exists()
        if ending != "jsonl":
            with pytest.raises(dm.InvalidInputError):
                dm.open_source(path, case.names, loss="loss").overview()


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


def sources(table, folder, *, all_of_them):
    yield "frames", table
    yield "pandas", table.to_pandas()
    yield "polars", pl.from_arrow(table).lazy()
    yield "duckdb", duckdb.from_arrow(table)
    if not all_of_them:
        return
    yield "dask", dd.from_pandas(table.to_pandas(), npartitions=3, sort=False)
    pa.parquet.write_table(table, folder / "rows.parquet")
    yield "Parquet", folder / "rows.parquet"
    kinds = [pa.float64() if kind == pa.float32() else kind for kind in table.schema.types]
    schema = pa.schema(zip(table.column_names, kinds, strict=True))
    pa.csv.write_csv(table.cast(schema), folder / "rows.csv")
    yield "CSV", folder / "rows.csv"
    yield "files of both halves", [folder / "first.parquet", folder / "second.parquet"]


def test_sources_count_the_same_rows(case, tmp_path):
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
    half = len(kept) // 2
    pa.parquet.write_table(table[:half], tmp_path / "first.parquet")
    pa.parquet.write_table(
        table[half:].select(table.column_names[::-1]), tmp_path / "second.parquet"
    )
    for kind, data in sources(table, tmp_path, all_of_them=case.seed % 4 == 0):
        source = dm.open_source(data, case.names, loss="loss", confidence=case.confidence)
        points = dm.evaluate(case.rule, source, by="row")
        decided = [points[row].accepted_id == 1 for row in kept]
        assert decided == case.expected[usable].tolist(), kind
    whole = dm.Sample.from_frame(table, case.names, loss="loss", confidence=case.confidence)
    assert dm.evaluate(case.rule, whole).accepted_id == case.expected[usable].sum()


def test_spark_counts_the_same_rows():
    """One case, with two scores and a confidence: Spark is slow to start."""
    if "DEMUR_CASES" not in os.environ:
        pytest.skip("a part of the longer campaign; test_same_meaning has a rule on Spark")
    need_java()
    case = next(c for c in map(Case, range(1000)) if len(c.names) == 2 and c.confidence)
    usable = np.isfinite(case.scores).all(axis=1)
    columns = dict(zip(case.names, case.scores.T, strict=True)) | {"row": np.arange(ROWS)}
    table = pa.table(columns | {"loss": np.zeros(ROWS)}).filter(pa.array(usable))
    names = {name: name.replace(".", "_") for name in table.column_names}
    table = table.rename_columns([names[name] for name in table.column_names])
    frame = without_pandas_warning(spark_session().createDataFrame, table)
    rule = replace(
        case.rule,
        score_names=tuple(names[n] for n in case.names),
        confidence=tuple(names[n] for n in case.confidence),
    )
    source = dm.open_source(frame, rule.score_names, loss="loss", confidence=rule.confidence)
    points = dm.evaluate(rule, source, by="row")
    decided = [points[row].accepted_id == 1 for row in np.flatnonzero(usable).tolist()]
    assert decided == case.expected[usable].tolist()
