"""The names users rely on; adding or dropping one is a decision, not an accident."""

import pickle

import demur as dm


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


def test_certificates_of_searches_and_of_statistics_have_names_of_their_own():
    tuned = dm.tune(dm.Sample([1, 2], [0, 1], [3]), dm.TprFprModel(0.5))
    assert type(tuned.certificate) is dm.SearchCertificate
    # The old name is still there, and means the same.
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
