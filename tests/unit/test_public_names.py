"""The names users rely on; adding or dropping one is a decision, not an accident."""

import importlib
import inspect
import pickle
import sys
from pathlib import Path

import pytest

import demur as dm

DOCS = Path(__file__).parents[2] / "docs"
# Values, which have no docstring of their own: what is in them shows their use.
VALUES = {"demur.detectors.CATALOG", "demur.population.METHODS"}


def test_public_names():
    assert sorted(dm.__all__) == [
        "Bound",
        "BoxRule",
        "CostModel",
        "DemurError",
        "Exact",
        "ExpectedCost",
        "Frontier",
        "Grid",
        "InfeasibleError",
        "InvalidInputError",
        "LikelyMistakeWarning",
        "MissingExtraError",
        "NotTunedError",
        "OperatingPoint",
        "PrecisionRecallModel",
        "Prepared",
        "RejectionModel",
        "Report",
        "RiskFprModel",
        "Rule",
        "Sample",
        "ScoreSource",
        "ScoreUnitsWarning",
        "SearchCertificate",
        "TprFprModel",
        "Tuning",
        "evaluate",
        "frontier",
        "open_source",
        "prepare",
        "show_versions",
        "tune",
        "tune_by_group",
    ]
    assert len(dm.__all__) <= 34
    for name in dm.__all__:
        assert hasattr(dm, name)


ROOMS = ["adapters", "core", "detectors", "errors", "guarantees", "learn", "losses", "metrics"]
ROOMS += ["plots", "population", "report", "reproduce", "sources", "tuning", "watch"]
ROOMS += [f"adapters.{name}" for name in dm.adapters.__all__]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_shows_its_public_names_and_nothing_else(room):
    try:
        module = importlib.import_module(f"demur.{room}")
    except dm.MissingExtraError as error:
        pytest.skip(str(error))
    assert sorted(dir(module)) == sorted(module.__all__)
    assert all(not name.startswith("_") for name in dir(module))


def test_certificates_of_searches_and_of_statistics_have_names_of_their_own():
    tuned = dm.tune(dm.Sample([1, 2], [0, 1], [3]), dm.TprFprModel(0.5))
    assert type(tuned.certificate) is dm.SearchCertificate
    # The old name is still there, and means the same.
    with pytest.warns(DeprecationWarning, match="SearchCertificate"):
        assert dm.Certificate is dm.SearchCertificate
    assert "Certificate" not in dir(dm)
    assert not {"Certificate", "SearchCertificate"} & set(dir(dm.guarantees))


def test_values_and_errors_survive_pickling():
    model = dm.TprFprModel(0.8, 0.1)
    tuned = dm.tune(dm.Sample([1, 2], [0, 1], [3]), dm.TprFprModel(0.5))
    assert pickle.loads(pickle.dumps(tuned)) == tuned
    error = dm.InfeasibleError("no", model=model, attainable={"max_tpr": 0.5})
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.model, again.attainable) == ("no", model, {"max_tpr": 0.5})
    missing = pickle.loads(pickle.dumps(dm.MissingExtraError("torch", "torch")))
    assert missing.extra == "torch"


def _public():
    sys.path.insert(0, str(DOCS))
    try:
        pages = importlib.import_module("generated_pages").pages()
    finally:
        sys.path.remove(str(DOCS))
    return pages


def test_every_public_name_has_an_example_that_is_run():
    # Examples of docstrings are run by pytest itself (--doctest-modules).
    lacking = []
    for room, names in _public().items():
        module = pytest.importorskip(room)
        for name in names:
            value = getattr(module, name.rsplit(".", 1)[1])
            if name not in VALUES and ">>>" not in (inspect.getdoc(value) or ""):
                lacking.append(name)
    assert lacking == []


def test_no_public_room_is_missing_in_the_reference():
    rooms = set(_public())
    for room in dm._ROOMS:
        # These are seen by their submodules, or at the top.
        if room not in ("adapters", "report", "sources"):
            assert f"demur.{room}" in rooms
    for adapter in dm.adapters.__all__:
        assert f"demur.adapters.{adapter}" in rooms
