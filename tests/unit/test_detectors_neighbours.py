import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from demur import detectors as dt
from demur.detectors import features


def unit(row):
    length = math.hypot(*row)
    return [x / length for x in row] if length > 0 else list(row)


def slow_kth(bank, queries, k):
    bank = [unit(row) for row in bank]
    return [sorted(math.dist(unit(q), row) for row in bank)[k - 1] for q in queries]


def scores(bank, queries, k):
    return dt.Knn(k=k).fit(dt.Activations(features=bank)).score(dt.Activations(features=queries))


@pytest.mark.parametrize("k", [1, 7, 50, 80])
def test_random(k):
    rng = np.random.default_rng(k)
    bank, queries = rng.normal(size=(80, 9)), rng.normal(size=(30, 9))
    slow = slow_kth(bank.tolist(), queries.tolist(), k)
    assert scores(bank, queries, k) == pytest.approx(np.array(slow), rel=1e-13)


def test_the_default_is_the_fiftieth_neighbour_and_not_its_square():
    rng = np.random.default_rng(1)
    bank, queries = rng.normal(size=(70, 4)), rng.normal(size=(5, 4)) * 100
    train, test = dt.Activations(features=bank), dt.Activations(features=queries)
    slow = slow_kth(bank.tolist(), queries.tolist(), 50)
    assert dt.Knn().fit(train).score(test) == pytest.approx(np.array(slow), rel=1e-13)


@given(
    bank=hnp.arrays(np.float64, (12, 2), elements=st.integers(-2, 2).map(float)),
    queries=hnp.arrays(np.float64, (5, 2), elements=st.integers(-2, 2).map(float)),
    k=st.integers(1, 12),
)
@settings(max_examples=150, deadline=None)
def test_ties_duplicates_and_zero_rows(bank, queries, k):
    slow = np.array(slow_kth(bank.tolist(), queries.tolist(), k))
    fast = scores(bank, queries, k)
    assert np.isfinite(fast).all()
    assert fast == pytest.approx(slow, abs=4e-16)


def test_neighbours_too_close_for_single_precision_are_ranked_in_double():
    rng = np.random.default_rng(2)
    centre = rng.normal(size=40)
    bank = centre + rng.normal(size=(200, 40)) * 10.0 ** rng.uniform(-12, -6, size=(200, 1))
    queries = centre + rng.normal(size=(20, 40)) * 1e-9
    for k in (1, 20, 100, 200):
        slow = np.array(slow_kth(bank.tolist(), queries.tolist(), k))
        assert scores(bank, queries, k) == pytest.approx(slow, abs=1e-15)


def test_a_row_of_the_bank_is_at_distance_zero():
    bank = np.random.default_rng(3).normal(size=(300, 64)).astype(np.float32)
    assert (scores(bank, bank, 1) == 0).all()


def test_magnitude_of_a_feature_does_not_matter():
    rng = np.random.default_rng(4)
    bank, queries = rng.normal(size=(20, 5)), rng.normal(size=(6, 5))
    plain = scores(bank, queries, 3)
    for factor in (1e-300, 1e-160, 1e160, 1e300):
        assert scores(bank * factor, queries, 3) == pytest.approx(plain, rel=1e-12)
        assert scores(bank, queries * factor, 3) == pytest.approx(plain, rel=1e-12)


def test_a_zero_feature_is_at_distance_one():
    bank = np.random.default_rng(5).normal(size=(30, 3))
    assert scores(bank, np.zeros((2, 3)), 10) == pytest.approx([1.0, 1.0], rel=1e-15)
    assert scores(np.vstack([bank, np.zeros(3)]), np.zeros((1, 3)), 1).tolist() == [0.0]


def test_blocks_and_batches_change_no_bit(monkeypatch):
    rng = np.random.default_rng(6)
    bank, queries = np.abs(rng.normal(size=(500, 33))), np.abs(rng.normal(size=(70, 33)))
    whole = scores(bank, queries, 50)
    pieces = [scores(bank, queries[i : i + 9], 50) for i in range(0, 70, 9)]
    assert np.array_equal(whole, np.concatenate(pieces))
    monkeypatch.setattr(features, "_BLOCK", 1100)
    assert np.array_equal(whole, scores(bank, queries, 50))


def test_faiss_gives_the_same_distances(monkeypatch):
    pytest.importorskip("faiss")
    rng = np.random.default_rng(7)
    bank, queries = rng.normal(size=(400, 16)), rng.normal(size=(25, 16))
    exact = {k: scores(bank, queries, k) for k in (1, 50, 400)}
    monkeypatch.setattr(features, "_FAISS_ROWS", 100)
    monkeypatch.setattr(features, "_block_kth", None)
    for k, expected in exact.items():
        assert scores(bank, queries, k) == pytest.approx(expected, rel=1e-14)


def test_the_faiss_index_is_built_once(monkeypatch):
    faiss = pytest.importorskip("faiss")
    built = []

    class Counted(faiss.IndexFlatL2):
        def __init__(self, columns):
            built.append(columns)
            super().__init__(columns)

    monkeypatch.setattr(faiss, "IndexFlatL2", Counted)
    monkeypatch.setattr(features, "_FAISS_ROWS", 100)
    rng = np.random.default_rng(9)
    knn = dt.Knn(k=3).fit(dt.Activations(features=rng.normal(size=(150, 8))))
    queries = dt.Activations(features=rng.normal(size=(12, 8)))
    first = knn.score(queries)
    assert np.array_equal(np.concatenate([knn.score(queries.take([i])) for i in range(12)]), first)
    assert built == [8]
    # A copy in another process makes an index of its own.
    again = pickle.loads(pickle.dumps(knn))
    assert np.array_equal(again.score(queries), first)
    assert built == [8, 8]


def test_without_faiss_large_banks_still_work(monkeypatch):
    rng = np.random.default_rng(8)
    bank, queries = rng.normal(size=(150, 4)), rng.normal(size=(5, 4))
    expected = scores(bank, queries, 2)
    monkeypatch.setattr(features, "_FAISS_ROWS", 100)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(features, "_faiss_kth", None)
    assert np.array_equal(scores(bank, queries, 2), expected)
