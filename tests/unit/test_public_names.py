"""The names users rely on; adding or dropping one is a decision, not an accident."""

import pickle

import demur as dm


def test_public_names():
    assert sorted(dm.__all__) == [
        "Bound",
        "Certificate",
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
        "Rule",
        "Sample",
        "ScoreSource",
        "ScoreUnitsWarning",
        "TprFprModel",
        "Tuning",
        "evaluate",
        "frontier",
        "open_source",
        "prepare",
        "show_versions",
        "tune",
    ]
    assert len(dm.__all__) <= 32
    for name in dm.__all__:
        assert hasattr(dm, name)


def test_values_and_errors_survive_pickling():
    model = dm.TprFprModel(0.8, 0.1)
    tuned = dm.tune(dm.Sample([1, 2], [0, 1], [3]), dm.TprFprModel(0.5))
    assert pickle.loads(pickle.dumps(tuned)) == tuned
    error = dm.InfeasibleError("no", model=model, attainable={"max_tpr": 0.5})
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.model, again.attainable) == ("no", model, {"max_tpr": 0.5})
    missing = pickle.loads(pickle.dumps(dm.MissingExtraError("torch", "torch")))
    assert missing.extra == "torch"
