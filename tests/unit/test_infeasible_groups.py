"""What is said when bounds on groups, sets or the risk cannot be met."""

import numpy as np
import pytest

import demur as dm

RNG = np.random.default_rng(5)
GROUP = np.where(RNG.random(400) < 0.2, "rare", "common")
ID = RNG.normal(size=(400, 2)) + np.where(GROUP == "rare", 0.9, 0)[:, None]
OOD = RNG.normal(size=(300, 2)) + np.array([0.5, 2])
LOSS = (RNG.random(400) < 1 / (1 + np.exp(2 - ID[:, 0]))).astype(float)
SAMPLE = dm.Sample(
    ID, LOSS, {"far": OOD[:150] + 0.5, "near": OOD[150:]}, score_names=["a", "b"], id_group=GROUP
)


def attempt(*bounds, objective="selective_risk"):
    with pytest.raises(dm.InfeasibleError) as caught:
        dm.tune(SAMPLE, dm.RejectionModel(objective, bounds))
    return caught.value


def test_the_group_that_binds_is_named():
    asked = [
        dm.Bound("tpr", at_least=0.3),
        dm.Bound("fpr", at_most=0.05),
        dm.Bound("tpr", at_least=0.9, group="rare"),
        dm.Bound("tpr", at_least=0.2, group="common"),
    ]
    error = attempt(*asked)
    best = error.attainable["max_tpr of rare"]
    assert 0 < best < 0.9
    assert f"the largest tpr of rare is {best:.4g}" in str(error)
    # Relaxed so far it can be met, and no further.
    for share, met in ((best, True), (best + 0.002, False)):
        model = dm.RejectionModel(
            "selective_risk", [*asked[:2], dm.Bound("tpr", at_least=share, group="rare"), asked[3]]
        )
        if met:
            assert dm.tune(SAMPLE, model).point.tpr_by_group["rare"] >= best
        else:
            with pytest.raises(dm.InfeasibleError):
                dm.tune(SAMPLE, model)
    assert np.isnan(error.attainable["max_tpr of common"])
    assert "relaxing tpr or tpr of common alone is not enough" in str(error)


def test_the_least_risk_is_told():
    error = attempt(
        dm.Bound("selective_risk", at_most=0.001),
        dm.Bound("tpr", at_least=0.7),
        dm.Bound("fpr", at_most=0.3),
    )
    best = dm.tune(SAMPLE, dm.TprFprModel(0.7, 0.3)).point.selective_risk
    assert error.attainable["min_selective_risk"] == best


def test_the_set_that_binds_is_named():
    error = attempt(dm.Bound("tpr", at_least=0.8), dm.Bound("fpr", at_most=0.01, ood_set="near"))
    best = error.attainable["min_fpr of near"]
    assert 0.01 < best < 1
    assert "fpr <= 0.01 of near" in str(error)


def test_the_risk_of_a_group_is_told():
    error = attempt(
        dm.Bound("tpr", at_least=0.9, group="rare"),
        dm.Bound("selective_risk", at_most=0.02, group="rare"),
    )
    best = error.attainable["min_selective_risk of rare"]
    model = dm.RejectionModel(
        "tpr",
        [
            dm.Bound("tpr", at_least=0.9, group="rare"),
            dm.Bound("selective_risk", at_most=best, group="rare"),
        ],
    )
    assert dm.tune(SAMPLE, model).point.selective_risk_by_group["rare"] <= best


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (dm.Bound("tpr", at_least=0.5, group="rarer"), "'common', 'rare'"),
        (dm.Bound("fpr", at_most=0.5, ood_set="svhn"), "'far', 'near'"),
        (dm.Bound("fpr", at_least=0.5), "worse rule"),
        (dm.Bound("selective_risk", at_least=0.5), "worse rule"),
        (dm.Bound("tpr", at_most=0.5, group="rare"), "worse rule"),
    ],
)
def test_bounds_that_no_search_can_keep_are_refused(bound, said):
    with pytest.raises(dm.InvalidInputError, match=said):
        dm.tune(SAMPLE, dm.RejectionModel("selective_risk", [bound]))
