"""`open_source`: files and frames of every kind are the same rows."""

import dask.dataframe as dd
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import run_here
from scored_tables import check_answers, table_of
from streams import check_against_memory, random_sample

import demur as dm

RNG = np.random.default_rng(11)
SAMPLE = random_sample(RNG)
TABLE, ROLES = table_of(SAMPLE, RNG, day=True)
COLUMNS = {"loss": "loss", "ood": "group", "weight": ROLES.weight}
MODEL = dm.TprFprModel(0.4, 0.5)
FRAMES = {
    "pyarrow": lambda: TABLE,
    "pandas": lambda: TABLE.to_pandas(),
    "polars": lambda: pl.from_arrow(TABLE),
    "polars lazy": lambda: pl.from_arrow(TABLE).lazy(),
    "dask": lambda: dd.from_pandas(TABLE.to_pandas(), npartitions=3, sort=False),
    "duckdb": lambda: duckdb.from_arrow(TABLE),
}


def opened(data, **options):
    return dm.open_source(data, ROLES.scores, **COLUMNS, **options)


def check(source):
    check_against_memory(
        SAMPLE, lambda: dm.tune(source, MODEL), MODEL, directions=None, ood="pooled"
    )


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_every_kind(kind):
    source = opened(FRAMES[kind]())
    check_answers(source, SAMPLE, np.random.default_rng(0))
    check(source)
    points = dm.evaluate(dm.Rule((0.6, 0.8), 0.5), source, by="day")
    assert sorted(points) == [0, 1, 2]
    assert sum(p.accepted_id for p in points.values()) == pytest.approx(
        dm.evaluate(dm.Rule((0.6, 0.8), 0.5), SAMPLE).accepted_id
    )


# Dask reads Parquet with a keyword that pandas gives up.
@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("engine", ["duckdb", "dask"])
def test_files(engine, tmp_path):
    half = TABLE.num_rows // 2
    for place, part in enumerate((TABLE.slice(0, half), TABLE.slice(half))):
        pq.write_table(part, tmp_path / f"part-{place}.parquet")
    for data in (str(tmp_path / "*.parquet"), tmp_path, sorted(tmp_path.glob("*.parquet"))):
        source = opened(data, engine=engine)
        check(source)
        if engine == "duckdb":
            source.close()
    pa.csv.write_csv(TABLE, tmp_path / "all.csv")
    source = opened(tmp_path / "all.csv", engine=engine)
    assert source.overview().id_rows == SAMPLE.n_id
    if engine == "duckdb":
        source.close()


def test_every_source_can_be_closed(tmp_path):
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    for data in (TABLE, FRAMES["polars lazy"](), str(tmp_path / "rows.parquet")):
        with dm.open_source(data, ROLES.scores, **COLUMNS) as source:
            assert source.overview().rows == TABLE.num_rows
        source.close()


def test_confidences_and_missing_values():
    frame = pl.DataFrame({"c": [0.9, 0.3, None, 0.2], "l": [0, 1, 0, 0], "o": [0, 0, 0, 1]})
    with pytest.raises(dm.InvalidInputError, match=r"'c' is missing or NaN in 1 rows.*drop"):
        dm.open_source(frame, "c", loss="l", ood="o", confidence=["c"]).overview()
    source = dm.open_source(frame, "c", loss="l", ood="o", confidence=["c"], missing="drop")
    seen = source.overview()
    assert (seen.id_rows, seen.ood_rows, seen.low[0], seen.high[0]) == (2, (1,), -0.9, -0.2)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (3, {}, "data is a int"),
        (pl.DataFrame({"s": [1.0], "l": [0]}), {"missing": "ignore"}, "missing must be"),
        (pl.DataFrame({"s": [1.0], "l": [0]}), {"engine": "hive"}, "engine must be one of duckdb"),
        (pl.DataFrame({"s": ["a"], "l": [0]}), {}, "column 's' holds String, not numbers"),
        (pl.DataFrame({"s": [1.0], "k": [0]}), {}, "loss: the frame has no column 'l'"),
        (pl.DataFrame({"s": [-np.inf], "l": [0]}), {}, "column 's' is -inf in 1 rows"),
        (pl.DataFrame({"s": [1.0], "l": [-1]}), {}, "'l' is negative or infinite in 1 rows"),
        (pl.DataFrame({"s": [1.0], "l": [0], "o": [2]}), {"ood": "o"}, "not 0 or 1 in 1 rows"),
        (pl.DataFrame({"s": [1.0], "l": [0], "o": [1]}), {"ood": "o"}, "every row as OOD"),
        (pl.DataFrame({"s": [1.0], "l": [0]}).clear(), {}, "no rows"),
        ("none/*.parquet", {}, "no file matches"),
    ],
)
def test_what_cannot_be_opened(data, options, message):
    with pytest.raises(dm.InvalidInputError, match=message):
        dm.open_source(data, "s", loss="l", **options).overview()


def truncate(path):
    path.write_bytes(path.read_bytes()[:-50])


def text_for_numbers(path):
    table = pq.ParquetFile(path).read()
    pq.write_table(table.set_column(1, "score 1", table["score 1"].cast(pa.string())), path)


@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize("engine", ["duckdb", "dask"])
@pytest.mark.parametrize(
    ("damage", "words"), [(truncate, "part-9.parquet"), (text_for_numbers, "'score 1'")]
)
def test_trouble_in_the_tenth_file(engine, damage, words, tmp_path):
    for place in range(11):
        pq.write_table(TABLE.slice(20 * place, 20), tmp_path / f"part-{place}.parquet")
    damage(tmp_path / "part-9.parquet")
    with pytest.raises(dm.InvalidInputError, match=r"part-9\.parquet") as caught:
        opened(tmp_path, engine=engine).overview()
    assert words in str(caught.value)


def test_text_in_one_of_the_files_is_what_memory_tells(tmp_path):
    """Rows of the other files are numbers, which are not what is wrong."""
    for place, scores in enumerate(([0.5, 1.5], ["2.5", None], [3.5, 4.5])):
        table = pa.table({"s": scores, "wrong": [0, 1]})
        pq.write_table(table, tmp_path / f"part-{place}.parquet")
    arguments = ["--scores", "s", "--loss", "wrong", "--min-tpr", ".5", "--engine", "memory"]
    done = run_here(tmp_path, "tune", ".", *arguments)
    assert done.returncode == 2
    assert "column 's' holds str values such as '2.5', not numbers" in done.stderr


def test_a_task_of_dask_that_fails_is_told():
    frame = dd.from_pandas(TABLE.to_pandas(), npartitions=3, sort=False)

    def failing(part):
        raise ValueError("no such luck")

    shaky = frame.map_partitions(failing, meta=frame._meta)
    with pytest.raises(dm.InvalidInputError, match="Dask: no such luck"):
        opened(shaky).overview()
