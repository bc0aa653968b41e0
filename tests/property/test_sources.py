"""What every engine must hold: its answers, and the tuned rule, are those of memory.

A new engine is a context manager in `tests/support/engines.py` and a class below. The classes keep
the tests of an engine together, so that it is started once.
"""

import engines
import numpy as np
import pyarrow as pa
import pytest
from scored_tables import SETS, check_answers, table_of, varied_table
from streams import DIRECTIONS, check_against_memory, random_model, random_sample

import demur as dm
from demur.sources.open import Roles


@pytest.fixture(scope="class")
def source_of(request):
    """Return what makes a table and the roles of its columns a source."""
    with request.cls.start() as source_of:
        yield source_of


class EngineTests:
    """Tests of any source."""

    answers: int
    tunings: int
    first: int
    """Seed of the first tuning."""
    single = 0
    """Which of five tunings is one of a single score."""
    holes = True
    """Whether there may be rows that lack a value."""

    def test_answers(self, source_of, answer):
        rng = np.random.default_rng(answer)
        sample = random_sample(rng, scores=1 + answer % 2)
        check_answers(source_of(*table_of(sample, rng)), sample, rng)

    def test_tuning_is_that_of_memory(self, source_of, tuning):
        rng = np.random.default_rng(self.first + tuning)
        sample = random_sample(rng, scores=1 if tuning % 5 == self.single else 2)
        model, directions = random_model(rng, sample), str(rng.choice(DIRECTIONS))
        ood = str(rng.choice(["pooled", "worst"]))
        sample, table, roles, lacking = varied_table(sample, rng, holes=self.holes)
        if lacking:
            with pytest.raises(dm.InvalidInputError, match="missing or NaN"):
                dm.tune(source_of(table, roles), model)
        source = source_of(table, roles, **({"missing": "drop"} if lacking else {}))
        check_against_memory(
            sample,
            lambda: dm.tune(source, model, directions=directions, ood=ood),
            model,
            directions=directions,
            ood=ood,
        )


class TableTests(EngineTests):
    """Tests of sources that have more columns, and rows that lack a value."""

    text = "String"
    """What the engine calls the type of text."""

    def test_points_by_day(self, source_of):
        table = pa.table(
            {
                "s": [0.1, 0.9, 0.2, 0.8, 0.3, 0.7],
                "l": [0.0, 1.0, 0.0, 1.0, None, None],
                "set": ["id", None, "", "id", "far", "near"],
                "day": ["mon", "mon", "tue", "tue", "mon", None],
            }
        )
        source = source_of(table, Roles(("s",), loss="l", ood="set"))
        points = dm.evaluate(dm.Rule((1.0,), 0.5), source, by="day", ood_prior=0.1)
        assert set(points) == {"mon", "tue", None}
        assert points["mon"].tpr == 0.5 and points["mon"].fpr_by_set["far"] == 1
        assert points["tue"].accepted_id == 1 and points["tue"].selective_risk == 0
        # A group without ID rows has no TPR, one without OOD rows no FPR.
        assert np.isnan(points[None].tpr) and points[None].fpr == 0
        assert np.isnan(points[None].precision) and np.isnan(points["tue"].fpr)

    def test_points_by_numbers_of_which_some_are_missing(self, source_of):
        n = 12
        columns = {"s": np.arange(n) / 10, "l": np.arange(n) % 2}
        for values, expected in (
            ([1.5, float("nan"), None], {1.5: 2, None: 4}),
            ([1.5, float("nan"), 2.0], {1.5: 2, None: 2, 2: 2}),
            ([0.0, -0.0, 2.0], {0: 4, 2: 2}),
            ([7, None, 3], {7: 2, None: 2, 3: 2}),
        ):
            table = pa.table(columns | {"by": pa.array(values * 4)})
            source = source_of(table, Roles(("s",), loss="l"))
            points = dm.evaluate(dm.Rule((1.0,), 0.5), source, by="by")
            assert {name: point.accepted_id for name, point in points.items()} == expected
            assert {type(name) for name in points} <= {int, float, type(None)}
            assert all(isinstance(name, int) for name in points if name in (0, 2, 3, 7))

    def test_points_by_day_of_random_rows(self, source_of):
        rng = np.random.default_rng(6)
        sample = random_sample(rng)
        table, roles = table_of(sample, rng, day=True)
        points = dm.evaluate(dm.Rule((0.6, 0.8), 0.5), source_of(table, roles), by="day")
        rows = table.to_pylist()
        assert sorted(points) == sorted({row["day"] for row in rows})
        for day, point in points.items():
            there = [row for row in rows if row["day"] == day and row["loss"] is not None]
            taken = sum(
                (0.6 * row["score 0"] + 0.8 * row["score 1"] <= 0.5) * row.get("weight", 1.0)
                for row in there
            )
            total = sum(row.get("weight", 1.0) for row in there)
            assert point.tpr == pytest.approx(taken / total)

    def test_rows_that_cannot_be_used(self, source_of):
        table = pa.table(
            {"s": [0.1, None, float("nan"), 0.3], "l": [0, 1, 0, 1], "t": list("abcd")}
        )
        roles = Roles(("s",), loss="l")
        with pytest.raises(dm.InvalidInputError, match=r"'s' is missing or NaN in 2 rows"):
            source_of(table, roles).overview()
        assert source_of(table, roles, missing="drop").overview().rows == 2
        with pytest.raises(dm.InvalidInputError, match="no column 'x'"):
            source_of(table, Roles(("x",), loss="l"))
        with pytest.raises(
            dm.InvalidInputError, match=f"column 't' holds {self.text}, not numbers"
        ):
            source_of(table, Roles(("t",), loss="l"))


class LocalTests(TableTests):
    """Tests of engines of this process, which are quick."""

    answers, tunings, first = 15, 12, 1000

    @pytest.mark.parametrize("bad", [float("nan"), None])
    def test_missing_scores_are_refused_or_dropped(self, source_of, bad):
        rng, model = np.random.default_rng(8), dm.TprFprModel(0.5)
        sample = dm.Sample(
            rng.normal(size=(200, 2)), rng.integers(0, 2, 200), rng.normal(size=(100, 2))
        )
        table, roles = table_of(sample, rng)
        values = table["score 1"].to_pylist()
        values[7] = values[90] = bad
        holed = table.set_column(1, "score 1", pa.array(values, pa.float64()))
        with pytest.raises(dm.InvalidInputError, match="'score 1' is missing or NaN in 2 rows"):
            dm.tune(source_of(holed, roles), model)
        kept = table.take([i for i in range(len(table)) if i not in (7, 90)])
        here = dm.Sample.from_frame(kept, roles.scores, loss=roles.loss, ood=roles.ood)
        there = dm.tune(source_of(holed, roles, missing="drop"), model)
        assert there.point == dm.tune(here, model).point


class TestArrays(EngineTests):
    start = staticmethod(engines.arrays)
    answers, tunings, first, holes = 20, 4, 1000, False


class TestFrames(LocalTests):
    start = staticmethod(engines.frames)
    answers, tunings = 5, 4


class TestDuckDB(LocalTests):
    start = staticmethod(engines.duckdb)


class TestPolars(LocalTests):
    start = staticmethod(engines.polars)


class TestPushdown(LocalTests):
    start = staticmethod(engines.pushdown)
    tunings = 4


class TestDask(TableTests):
    start = staticmethod(engines.dask)
    answers, tunings, first, single = 6, 4, 3000, 4


class TestSpark(TableTests):
    """With ``SPARK_REMOTE=local[2]`` in the environment these are tests of Spark Connect."""

    start = staticmethod(engines.spark)
    answers, tunings, first, single = 2, 2, 2000, 4


class TestPostgres(LocalTests):
    start = staticmethod(engines.postgres)
    answers, tunings, text = 8, 6, "text"


class TestSQLite(LocalTests):
    start = staticmethod(engines.sqlite)
    answers, tunings, text = 8, 6, "text"

    @pytest.mark.parametrize("bad", [None])
    def test_missing_scores_are_refused_or_dropped(self, source_of, bad):
        """SQLite stores no NaN."""
        super().test_missing_scores_are_refused_or_dropped(source_of, bad)


class TestDuckDBBySql(LocalTests):
    start = staticmethod(engines.duckdb_sql)
    answers, tunings, text = 8, 6, "text"


def pytest_generate_tests(metafunc):
    """Give each engine as many random data sets as its speed allows, or as were asked for."""
    if "answer" in metafunc.fixturenames:
        metafunc.parametrize("answer", range(metafunc.cls.answers))
    if "tuning" in metafunc.fixturenames:
        metafunc.parametrize("tuning", range(SETS or metafunc.cls.tunings))
