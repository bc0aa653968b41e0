"""The same rows mean the same on every engine, or are refused with the same cause."""

import dask.dataframe as dd
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from engines import need_java, spark_session, without_pandas_warning

import demur as dm
from demur.core.columns import sample_from_columns
from demur.sources import tables

FRAMES = {
    "pyarrow": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "polars": lambda table: pl.from_arrow(table),
    "polars lazy": lambda table: pl.from_arrow(table).lazy(),
    "dask": lambda table: dd.from_pandas(table.to_pandas(), npartitions=2, sort=False),
    "duckdb": lambda table: duckdb.from_arrow(table),
}
MODEL = dm.TprFprModel(0.6, 0.5)


def scored(n=400):
    rng = np.random.default_rng(4)
    wrong = rng.random(n) < 0.2
    ood = rng.random(n) < 0.3
    return pa.table(
        {
            "note": ["x"] * n,
            "iso": rng.normal(size=n) + 1.5 * ood,
            "wrong": wrong.astype(int),
            "conf": np.round(rng.random(n) * (1 - 0.5 * (wrong | ood)), 3),
            "ood": ood,
        }
    )


def check_rule(source, table, path):
    """Every way to decide must decide alike on the raw columns."""
    rule = dm.tune(source, MODEL).rule
    assert rule.score_names == ("conf", "iso") and rule.confidence == ("conf",)
    raw = np.column_stack([table["conf"].to_numpy(), table["iso"].to_numpy()])
    accepted = rule.accept(raw)
    assert 0 < accepted.sum() < len(accepted)
    point, ood = dm.evaluate(rule, source), table["ood"].to_numpy()
    assert point.tpr == pytest.approx(accepted[~ood].mean())
    assert point.fpr == pytest.approx(accepted[ood].mean())
    permuted = table.select(["ood", "iso", "note", "conf"])
    rule.save(path)
    for one in (rule, dm.Rule.load(path), dm.Rule.from_json(rule.to_json())):
        for frame in (permuted, permuted.to_pandas(), pl.from_arrow(permuted)):
            np.testing.assert_array_equal(one.accept(frame), accepted)
    with duckdb.connect() as connection:
        rows = connection.from_arrow(permuted)
        found = rows.query("rows", f"SELECT {rule.to_sql()} FROM rows").fetchall()
    assert [row[0] for row in found] == accepted.tolist()


@pytest.mark.parametrize(
    ("kind", "confidence"),
    [(kind, "conf") for kind in FRAMES] + [("duckdb", ["conf"]), ("duckdb", ("conf",))],
)
def test_rules_are_about_raw_columns(kind, confidence, tmp_path):
    table = scored()
    source = dm.open_source(
        FRAMES[kind](table), ["conf", "iso"], loss="wrong", ood="ood", confidence=confidence
    )
    check_rule(source, table, tmp_path / "rule.json")


def right_where(wrong, kind):
    """Return what is right as flags, numbers, or numbers with nothing said of some rows."""
    if kind == "gaps":
        return pa.array([None if w is None else 1.0 - w for w in wrong])
    right = [not w for w in wrong]
    return pa.array(right) if kind == "flags" else pa.array([int(r) for r in right])


@pytest.mark.parametrize("kind", ["flags", "numbers", "gaps"])
@pytest.mark.parametrize("frame", FRAMES)
def test_correct_is_the_opposite_of_loss(frame, kind):
    """On every engine; OOD rows are neither right nor wrong."""
    table = scored(200)
    wrong = [int(w) for w in table["wrong"].to_pylist()]
    if kind == "gaps":
        wrong = [None if o else w for w, o in zip(wrong, table["ood"].to_pylist(), strict=True)]
    table = table.append_column("right", right_where(wrong, kind))
    columns = {"scores": ["conf", "iso"], "ood": "ood", "confidence": "conf"}
    rows = FRAMES[frame](table)
    expected = dm.tune(dm.open_source(rows, loss="wrong", **columns), MODEL)
    found = dm.tune(dm.open_source(rows, correct="right", **columns), MODEL)
    assert (found.rule, found.point) == (expected.rule, expected.point)
    if frame in ("pyarrow", "pandas", "polars"):
        held = dm.tune(dm.Sample.from_frame(rows, correct="right", **columns), MODEL)
        assert (held.rule, held.point) == (expected.rule, expected.point)
    for wrong_way, message in {
        "conf": "'conf' is neither 0 nor 1 in",
        "note": "correct: column 'note' holds",
    }.items():
        with pytest.raises(dm.InvalidInputError, match=message):
            dm.open_source(rows, correct=wrong_way, **columns).overview()
    with pytest.raises(dm.InvalidInputError, match="or correct"):
        dm.open_source(rows, correct="right", loss="wrong", **columns)


@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("engine", ["duckdb", "dask"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_correct_in_files(engine, suffix, tmp_path):
    table = scored()
    table = table.append_column("right", right_where(table["wrong"].to_pylist(), "flags"))
    path = tmp_path / f"a.{suffix}"
    (pq.write_table if suffix == "parquet" else pa.csv.write_csv)(table, path)
    columns = {"scores": ["conf", "iso"], "ood": "ood", "confidence": "conf"}
    found = dm.tune(dm.open_source(path, correct="right", engine=engine, **columns), MODEL)
    expected = dm.tune(dm.Sample.from_frame(table, loss="wrong", **columns), MODEL)
    assert (found.rule, found.point) == (expected.rule, expected.point)


@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("engine", ["duckdb", "dask"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_rules_of_files_are_about_raw_columns(engine, suffix, tmp_path):
    table = scored()
    path = tmp_path / f"a.{suffix}"
    (pq.write_table if suffix == "parquet" else pa.csv.write_csv)(table, path)
    source = dm.open_source(
        path, ["conf", "iso"], loss="wrong", ood="ood", confidence="conf", engine=engine
    )
    check_rule(source, table, tmp_path / "rule.json")
    if engine == "duckdb":
        source.close()


def test_spark_means_the_same(tmp_path):
    need_java()
    session = spark_session()
    table = scored(100)
    frame = without_pandas_warning(session.createDataFrame, table)
    options = {"loss": "wrong", "ood": "ood", "confidence": "conf"}
    check_rule(dm.open_source(frame, ["conf", "iso"], **options), table, tmp_path / "rule.json")
    right = table.append_column("right", right_where(table["wrong"].to_pylist(), "flags"))
    options = {"correct": "right", "ood": "ood", "confidence": "conf"}
    frame = without_pandas_warning(session.createDataFrame, right)
    told = dm.open_source(frame, ["conf", "iso"], **options).overview()
    lost = (table["wrong"].to_numpy() * ~table["ood"].to_numpy()).sum()
    assert (told.loss.total, told.plain) == (lost, True)
    mixed = session.createDataFrame(MIXED)
    with pytest.raises(dm.InvalidInputError, match=r"'y' holds numbers .* 'h' holds text"):
        dm.open_source(mixed, "s", label="y", prediction="h")
    spelled = dm.open_source(session.createDataFrame(SPELLED), "s", loss="l", ood="set")
    assert spelled.overview().sets == ("Far",) and spelled.overview().id_rows == 6
    write_lake(tmp_path / "lake")
    found = dm.open_source(tmp_path / "lake", "s", loss="l", ood="set", engine="spark").overview()
    assert found.sets == ("svhn",) and found.id_rows == 4
    (tmp_path / "a[1].csv").write_text("s;l\n1.5;0\n")
    with pytest.warns(dm.errors.ReadingWarning):
        source = dm.open_source(tmp_path / "a[1].csv", "s", loss="l", engine="spark")
    assert source.overview().low.tolist() == [1.5]


MIXED = pa.table({"s": [0.1, 0.2, 0.3], "y": [1, 2, 3], "h": ["1", "2", "unknown"]})
SPELLED = pa.table(
    {
        "s": np.arange(7) / 10,
        "l": [0, 1, 0, 0, 0, 0, 0],
        "set": ["ID", "id", " id ", "Id", "", None, "Far"],
    }
)


@pytest.mark.parametrize("kind", FRAMES)
def test_classes_of_different_kinds_are_refused(kind):
    for label, prediction in (("y", "h"), ("h", "y")):
        with pytest.raises(dm.InvalidInputError) as caught:
            dm.open_source(FRAMES[kind](MIXED), "s", label=label, prediction=prediction).overview()
        assert "'y' holds numbers" in str(caught.value) and "'h' holds text" in str(caught.value)
        assert "make both numbers or both text" in str(caught.value)


@pytest.mark.parametrize("kind", FRAMES)
def test_classes_of_one_kind_are_compared_as_values(kind):
    table = pa.table(
        {"s": [0.1, 0.2], "y": [1, 2], "h": [1.0, 3.0], "t": ["a", "b"], "u": list("ac")}
    )
    rule = dm.Rule((1.0,), 1.0)
    for label, prediction in (("y", "h"), ("t", "u")):
        source = dm.open_source(FRAMES[kind](table), "s", label=label, prediction=prediction)
        assert dm.evaluate(rule, source).selective_risk == 0.5


@pytest.mark.parametrize("values", [[1, 2, "a"], [1, None, "a"]])
def test_objects_of_different_kinds_are_refused(values):
    import pandas

    frame = pandas.DataFrame({"s": [0.1, 0.2, 0.3], "y": pandas.Series(values, dtype=object)})
    frame["h"] = [1, 2, 3]
    for data in (frame, dd.from_pandas(frame, npartitions=1, sort=False)):
        with pytest.raises(dm.InvalidInputError, match="different kinds"):
            dm.open_source(data, "s", label="y", prediction="h").overview()


@pytest.mark.parametrize("engine", ["memory", "duckdb", "dask"])
def test_one_unknown_in_a_csv(engine, tmp_path):
    lines = ["0.5,1,1"] * 30_000 + ["0.5,1,unknown"]
    (tmp_path / "a.csv").write_text("s,y,h\n" + "\n".join(lines) + "\n")
    with pytest.raises(dm.InvalidInputError, match="different kinds"):
        if engine == "memory":
            columns = tables.read_table(tmp_path / "a.csv", ["s", "y", "h"])
            sample_from_columns(columns, ["s"], label="y", prediction="h")
        else:
            given = {"label": "y", "prediction": "h", "engine": engine}
            dm.open_source(tmp_path / "a.csv", "s", **given).overview()


@pytest.mark.parametrize("kind", FRAMES)
def test_id_in_any_spelling(kind):
    seen = dm.open_source(FRAMES[kind](SPELLED), "s", loss="l", ood="set").overview()
    assert seen.sets == ("Far",) and (seen.id_rows, seen.ood_rows) == (6, (1,))
    sample = dm.Sample.from_frame(SPELLED, ["s"], loss="l", ood="set")
    assert list(sample.ood_sets) == ["Far"] and sample.n_id == 6


def write_lake(folder, suffix="parquet", **extra):
    for place, name in enumerate(("id", "svhn")):
        (folder / f"set={name}").mkdir(parents=True)
        table = pa.table({"s": np.arange(4) / 4 + place, "l": [0, 1, 0, 0], **extra})
        write = pq.write_table if suffix == "parquet" else pa.csv.write_csv
        write(table, folder / f"set={name}" / f"x.{suffix}")


@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("engine", ["memory", "duckdb", "dask"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("way", ["folder", "pattern"])
def test_hive_columns(engine, suffix, way, tmp_path):
    write_lake(tmp_path, suffix)
    data = tmp_path if way == "folder" else f"{tmp_path}/set=*/x.{suffix}"
    rule = dm.Rule((1.0,), 0.5)
    if engine == "memory":
        assert "set" in tables.table_columns(data)
        columns = tables.read_table(data, ["s", "l", "set"])
        sample = sample_from_columns(columns, ["s"], loss="l", ood="set")
    else:
        sample = dm.open_source(data, "s", loss="l", ood="set", engine=engine)
    point = dm.evaluate(rule, sample)
    assert (point.tpr, dict(point.fpr_by_set)) == (0.75, {"svhn": 0.0})


@pytest.mark.parametrize("engine", ["memory", "duckdb", "dask", "spark"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_column_that_differs_from_its_folder(engine, suffix, tmp_path):
    write_lake(tmp_path, suffix, set=["id", "id", "svhn", "id"])
    with pytest.raises(dm.InvalidInputError, match=r"the folder says set=.* but the column 'set'"):
        if engine == "memory":
            tables.read_table(tmp_path, ["s", "set"])
        else:
            dm.open_source(tmp_path, "s", loss="l", ood="set", engine=engine)


@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("engine", ["memory", "duckdb", "dask"])
def test_a_column_that_is_that_of_its_folder(engine, tmp_path):
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        table = pa.table({"s": [0.1, 0.2], "l": [0, 1], "day": [day, day]})
        pq.write_table(table, tmp_path / f"day={day}" / "x.parquet")
    if engine == "memory":
        assert tables.read_table(tmp_path, ["day"])["day"].tolist() == [1, 1, 2, 2]
    else:
        source = dm.open_source(tmp_path, "s", loss="l", engine=engine)
        assert sorted(dm.evaluate(dm.Rule((1.0,), 1.0), source, by="day")) == [1, 2]


@pytest.mark.parametrize("engine", ["memory", "duckdb", "dask"])
@pytest.mark.parametrize("start", ["filled", "empty"])
def test_cells_may_be_empty_in_any_part_of_a_file(engine, start, tmp_path):
    """ID rows come first, or OOD rows do; these have no class, and a set only they have."""
    n = 8000
    rng = np.random.default_rng(0)
    ood = np.arange(n) >= n // 2 if start == "filled" else np.arange(n) < n // 2
    known = np.where(ood, "", rng.integers(0, 3, n))
    columns = {
        "score": rng.random(n) + ood,
        "label": known,
        "class": np.where(rng.random(n) < 0.8, known, np.where(ood, "", "0")),
        "set": np.where(ood, "svhn", ""),
        "loss": np.where(ood, "", "0.0"),
        "count": np.where(ood, "", np.arange(n)),
        "flag": np.where(ood, "", "true"),
        "note": np.where(ood, "text", ""),
    }
    lines = (",".join(map(str, row)) for row in zip(*columns.values(), strict=True))
    path = tmp_path / "a.csv"
    path.write_text("\n".join([",".join(columns), *lines]) + "\n")
    roles = {"label": "label", "prediction": "class", "ood": "set"}
    if engine == "memory":
        names = ["score", *roles.values()]
        source = sample_from_columns(tables.read_table(path, names), ["score"], **roles)
    else:
        source = dm.open_source(path, "score", engine=engine, **roles)
    point = dm.evaluate(dm.Rule((1.0,), 0.5, score_names=("score",)), source)
    accepted = columns["score"] <= 0.5
    wrong = columns["label"] != columns["class"]
    assert point.accepted_id == accepted[~ood].sum() and point.fpr_by_set == {"svhn": 0.0}
    assert point.accepted_loss == wrong[accepted & ~ood].sum()


@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("engine", ["duckdb", "dask"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("name", ["a[1]", "a*", "a?"])
def test_marks_in_names(engine, suffix, name, tmp_path):
    for stem, value in ((name, 1.0), ("a1", 9.0), ("aa", 9.0)):
        table = pa.table({"s": [value, value], "l": [0, 1]})
        write = pq.write_table if suffix == "parquet" else pa.csv.write_csv
        write(table, tmp_path / f"{stem}.{suffix}")
    source = dm.open_source(tmp_path / f"{name}.{suffix}", "s", loss="l", engine=engine)
    assert source.overview().high.tolist() == [1.0] and source.overview().rows == 2


@pytest.mark.parametrize("engine", ["memory", "duckdb", "dask", "spark"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_columns_of_one_name_in_files(engine, suffix, tmp_path):
    path = tmp_path / f"a.{suffix}"
    table = pa.table([[0.1], [0.2], [0]], names=["s", "s", "l"])
    (pq.write_table if suffix == "parquet" else pa.csv.write_csv)(table, path)
    with pytest.raises(dm.InvalidInputError, match="several columns called 's'"):
        if engine == "memory":
            tables.read_table(path, ["s", "l"])
        else:
            dm.open_source(path, "s", loss="l", engine=engine)


def test_columns_of_one_name_in_frames():
    import pandas

    table = pa.table([[0.1], [0.2], [0]], names=["s", "s", "l"])
    frame = pandas.DataFrame([[0.1, 0.2, 0]], columns=["s", "s", "l"])
    for data in (table, frame, duckdb.sql("SELECT .1 AS s, .2 AS s, 0 AS l")):
        with pytest.raises(dm.InvalidInputError):
            dm.open_source(data, "s", loss="l").overview()


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("name", ["*", "^s.*$"])
def test_names_that_are_patterns(kind, name):
    frame = FRAMES[kind](pa.table({name: [0.1, 0.2], "l": [0, 1]}))
    with pytest.raises(dm.InvalidInputError, match="for a pattern of names; rename"):
        dm.open_source(frame, name, loss="l")
    assert dm.Sample.from_frame(pa.table({name: [0.1], "l": [0]}), [name], loss="l").n_id == 1


@pytest.mark.parametrize("kind", FRAMES)
def test_large_unsigned_numbers(kind):
    large = [2**63 + 2**40 * i for i in range(6)]
    table = pa.table({"s": pa.array(large, pa.uint64()), "l": [0, 0, 1, 0, 0, 1]})
    source = dm.open_source(FRAMES[kind](table), "s", loss="l")
    assert source.overview().high.tolist() == [float(large[-1])]
    tuned = dm.tune(source, dm.TprFprModel(0.3))
    assert tuned.rule.accept(table).tolist() == [True, True] + [False] * 4
    assert dm.Sample.from_frame(table, ["s"], loss="l").id_scores[-1, 0] == float(large[-1])


CELLS = {
    "NA": None,
    "": None,
    "null": None,
    "nan": None,
    " 2 ": 2.0,
    "+2.5e0": 2.5,
    "1_000": "not",
    "1,5": "not",
    "#1": "not",
    "0x1F": "not",
    "true": "not",
}


@pytest.mark.parametrize("engine", ["memory", "duckdb", "dask"])
@pytest.mark.parametrize("cell", CELLS)
def test_one_rule_for_numbers_in_csv(engine, cell, tmp_path):
    quoted = f'"{cell}"' if "," in cell else cell
    (tmp_path / "a.csv").write_text(f"s,l,k\n.5,0,a\n{quoted},1,b\n.75,0,c\n")
    wanted = CELLS[cell]

    def read():
        if engine == "memory":
            columns = tables.read_table(tmp_path / "a.csv", ["s", "l"])
            return sample_from_columns(columns, ["s"], loss="l").id_scores.max()
        given = {"loss": "l", "engine": engine}
        return dm.open_source(tmp_path / "a.csv", "s", **given).overview().high[0]

    if isinstance(wanted, float):
        assert read() == wanted
    else:
        with pytest.raises(dm.InvalidInputError, match="'s'"):
            read()


def test_csv_files_with_columns_in_another_order(tmp_path):
    (tmp_path / "a.csv").write_text("s,l\n.5,0\n")
    (tmp_path / "b.csv").write_text("l,x,s\n1,7,.25\n")
    seen = dm.open_source(tmp_path, "s", loss="l").overview()
    assert (seen.low[0], seen.high[0], seen.loss.total) == (0.25, 0.5, 1)
    assert tables.read_table(tmp_path, ["s"])["s"].tolist() == [0.5, 0.25]


@pytest.mark.parametrize("engine", ["memory", "duckdb", "dask"])
def test_other_separators(engine, tmp_path):
    (tmp_path / "a.csv").write_text('s;l;"x;y"\n.5;0;"#"\n.25;1;"NA"\n')
    with pytest.warns(dm.errors.ReadingWarning, match="semicolons"):
        if engine == "memory":
            columns = tables.read_table(tmp_path / "a.csv", ["s", "x;y"])
            assert columns["x;y"].tolist() == ["#", "NA"] and columns["s"].max() == 0.5
        else:
            options = {"loss": "l", "ood": "x;y", "engine": engine}
            with pytest.raises(dm.InvalidInputError, match="every row as OOD"):
                dm.open_source(tmp_path / "a.csv", "s", **options).overview()


def test_failures_of_polars_are_told(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(dm.InvalidInputError, match="Polars: "):
        dm.open_source(pl.scan_parquet(tmp_path / "a.parquet"), "s", loss="l")
    (tmp_path / "a.csv").write_text("s,l\n" + "1,0\n" * 2000 + "x,0\n")
    with pytest.raises(dm.InvalidInputError, match="Polars: "):
        dm.open_source(pl.scan_csv(tmp_path / "a.csv"), "s", loss="l").overview()
