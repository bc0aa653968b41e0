"""Finite problems: tables, Bayes classifier, conditional risk, likelihood ratio."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import demur as dm
from demur.population import FiniteProblem, optimum


def random_tables(seed):
    """Return tables with zeros in them and a loss matrix."""
    rng = np.random.default_rng(seed)
    n, classes = int(rng.integers(1, 7)), int(rng.integers(1, 4))
    p_id = rng.integers(0, 4, (n, classes)).astype(float)
    p_id[int(rng.integers(n)), 0] += 1
    p_ood = rng.integers(0, 3, n).astype(float)
    p_ood[int(rng.integers(n))] += 1
    return p_id / p_id.sum(), p_ood / p_ood.sum(), rng.integers(0, 5, (classes, classes))


@pytest.mark.parametrize("seed", range(40))
def test_bayes_classifier_and_scores_equal_plain_loops(seed):
    p_id, p_ood, loss = random_tables(seed)
    problem = FiniteProblem(p_id, p_ood, loss)
    h, r, g = (problem.bayes_classifier(), problem.conditional_risk(), problem.likelihood_ratio())
    for x, (row, ood) in enumerate(zip(p_id, p_ood, strict=True)):
        mass = sum(row)
        expected = [
            sum(row[y] * loss[y][guess] for y in range(len(row))) for guess in range(len(row))
        ]
        assert expected[h[x]] == pytest.approx(min(expected))
        assert r[x] == pytest.approx(min(expected) / mass if mass else 0.0)
        assert g[x] == pytest.approx(ood / mass if mass else np.inf)
        assert problem.p_marginal[x] == pytest.approx(mass)


@pytest.mark.parametrize("seed", range(10))
def test_no_classifier_has_a_lower_conditional_risk_than_bayes(seed):
    p_id, p_ood, loss = random_tables(seed)
    problem = FiniteProblem(p_id, p_ood, loss)
    n, classes = p_id.shape
    bayes = problem.conditional_risk()
    for h in itertools.islice(itertools.product(range(classes), repeat=n), 200):
        given = problem.conditional_risk(np.array(h))
        assert (given >= bayes - 1e-15).all()
        x = int(np.argmax(p_id.sum(axis=1)))
        direct = sum(p_id[x, y] * loss[y, h[x]] for y in range(classes)) / p_id[x].sum()
        assert given[x] == pytest.approx(direct)


def test_zero_over_zero_is_a_likelihood_ratio_of_infinity():
    problem = FiniteProblem([[1.0], [0.0], [0.0]], [0.5, 0.5, 0.0])
    assert problem.likelihood_ratio().tolist() == [0.5, np.inf, np.inf]
    assert problem.conditional_risk().tolist() == [0.0, 0.0, 0.0]


def test_tiny_conditional_risk_keeps_its_digits():
    problem = FiniteProblem([[1 - 1e-20, 1e-20]], [1.0])
    assert problem.conditional_risk()[0] == pytest.approx(1e-20, rel=1e-12)


def test_overflowing_likelihood_ratio_is_infinite_not_a_warning():
    problem = FiniteProblem([[1.0], [5e-324]], [0.5, 0.5])
    assert problem.likelihood_ratio().tolist() == [0.5, np.inf]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([[0.5], [0.4]], [0.5, 0.5]), "p_id must add up to 1, adds up to 0.9"),
        (([[0.5], [0.5]], [0.5, 0.6]), "p_ood must add up to 1, adds up to 1.1"),
        (([[1.5], [-0.5]], [0.5, 0.5]), "p_id.* negative"),
        (([[0.5], [0.5]], [1.5, -0.5]), "p_ood.* negative"),
        (([[np.nan], [1.0]], [0.5, 0.5]), "p_id.* NaN"),
        (([0.5, 0.5], [0.5, 0.5]), r"p_id must have shape \(n, classes\)"),
        (([[0.5], [0.5]], [1.0]), "p_ood has 1 rows, expected 2"),
        (([[0.5], [0.5]], [0.5, 0.5], [[0, 1], [1, 0]]), "loss is for 2 classes"),
    ],
)
def test_bad_tables_are_refused_by_name(arguments, words):
    with pytest.raises(dm.InvalidInputError, match=words):
        FiniteProblem(*arguments)


def test_rounding_of_the_tables_is_divided_away():
    problem = FiniteProblem([[1 / 3 + 1e-10], [2 / 3]], [0.5, 0.5])
    assert problem.p_marginal.sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("classifier", [[0], [0, 2], [0, -1], [0, 0.5]])
def test_bad_classifiers_are_refused(classifier):
    problem = FiniteProblem([[0.5, 0.1], [0.2, 0.2]], [0.5, 0.5])
    with pytest.raises(dm.InvalidInputError, match="classifier"):
        problem.conditional_risk(classifier)


def test_tables_are_copied_and_frozen():
    table = np.array([[0.5], [0.5]])
    problem = FiniteProblem(table, [0.5, 0.5])
    table[0] = 9
    assert problem.p_id[0, 0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        problem.p_id[0] = 1


def test_densities_on_an_uneven_grid():
    edges = np.linspace(0, 1, 401) ** 2
    x, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    # p_I(x, 0) = x, p_I(x, 1) = 1 - x on [0, 1]: the Bayes error is 1/4.
    problem = FiniteProblem.from_densities(
        np.column_stack([x, 1 - x]), 2 * x, width=width, loss=None
    )
    assert problem.p_marginal @ problem.conditional_risk() == pytest.approx(0.25, abs=1e-4)
    assert problem.likelihood_ratio() == pytest.approx(2 * x, rel=1e-5)
    assert problem.p_ood.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("side", ["id_density", "ood_density"])
def test_a_grid_that_cuts_the_tails_off_is_refused(side):
    x = np.linspace(-1, 1, 200)
    normal = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    flat = np.full(200, 0.5)
    id_density, ood_density = (normal, flat) if side == "id_density" else (flat, normal)
    with pytest.raises(dm.InvalidInputError, match=f"{side} times width adds up to 0.6"):
        FiniteProblem.from_densities(id_density[:, None], ood_density, width=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_tuning_the_weighted_sample_never_beats_the_optimum(seed):
    p_id, p_ood, loss = random_tables(seed)
    problem = FiniteProblem(p_id, p_ood, loss)
    model = dm.TprFprModel(min_tpr=0.5, max_fpr=0.6)
    try:
        tuned = dm.tune(problem.as_sample(), model)
    except dm.InfeasibleError:
        return
    best = optimum(problem, model)
    assert best.point.selective_risk <= tuned.point.selective_risk + 1e-9
    accepted = tuned.rule.accept(problem.scores()).astype(float)
    assert tuned.point.tpr == pytest.approx(problem.p_marginal @ accepted)
    assert tuned.point.fpr == pytest.approx(problem.p_ood @ accepted)
    assert tuned.point.accepted_loss == pytest.approx(
        (problem.p_marginal * problem.conditional_risk()) @ accepted
    )
