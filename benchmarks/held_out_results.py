"""The table of the README: rules of several methods on held-out images.

    python -m benchmarks.held_out_results --draws 20

Each draw trains the classifier of `demur demo` on other images, tunes all methods on one half of
the rest and judges them on the other half. All are asked for TPR >= .75 and FPR <= .25.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable

import numpy as np

import demur as dm
from demur.guarantees import tune_certified
from demur.reproduce import demo

ASKED = dm.TprFprModel(min_tpr=0.75, max_fpr=0.25)
Method = Callable[[dm.Sample, int], dm.Rule | None]


def answer_all(pair: dm.Sample, seed: int) -> dm.Rule:
    return dm.Rule([1.0, 0.0], float(pair.id_scores[:, 0].max()) + 1, score_names=("msp", "knn"))


def msp_at_95(pair: dm.Sample, seed: int) -> dm.Rule:
    """Return what is usual: the threshold that accepts 95 % of ID rows."""
    msp = np.sort(pair.id_scores[:, 0])
    threshold = msp[math.ceil(0.95 * len(msp)) - 1]
    return dm.Rule([1.0, 0.0], float(threshold), score_names=("msp", "knn"))


def paper_grid(pair: dm.Sample, seed: int) -> dm.Rule | None:
    with warnings.catch_warnings():
        # Of units, which the paper does not speak of.
        warnings.simplefilter("ignore", dm.ScoreUnitsWarning)
        return _tuned(pair, dm.Grid(360))


def exact_pair(pair: dm.Sample, seed: int) -> dm.Rule | None:
    return _tuned(pair, dm.Exact())


def exact_msp(pair: dm.Sample, seed: int) -> dm.Rule | None:
    return _tuned(pair.score(0), dm.Exact())


def mapie_msp(pair: dm.Sample, seed: int) -> dm.Rule | None:
    """Return MAPIE's threshold on the softmax, found by Learn then Test for both rates."""
    from mapie.risk_control import BinaryClassificationController

    trust = 1 - np.concatenate([pair.id_scores[:, 0], pair.ood_scores[:, 0]])
    is_id = np.repeat([1, 0], [pair.n_id, pair.n_ood])
    control = BinaryClassificationController(
        predict_function=lambda rows: np.column_stack([1 - rows[:, 0], rows[:, 0]]),
        risk=["recall", "fpr"],
        target_level=[0.75, 0.25],
        confidence_level=0.95,
        best_predict_param_choice="precision",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        control.calibrate(trust[:, None], is_id)
    if control.best_predict_param is None:
        return None
    # It accepts where the trust is at least the parameter.
    return dm.Rule([1.0, 0.0], float(1 - control.best_predict_param), score_names=("msp", "knn"))


def promised_pair(pair: dm.Sample, seed: int) -> dm.Rule | None:
    try:
        return tune_certified(pair, ASKED, confidence=0.95, rng=seed).rule
    except dm.InfeasibleError:
        return None


METHODS: dict[str, Method] = {
    "answer everything": answer_all,
    "MSP at 95 % TPR": msp_at_95,
    "MSP, best threshold for the bounds": exact_msp,
    "MSP and KNN, the paper's grid of 360 angles": paper_grid,
    "**MSP and KNN, demur**": exact_pair,
    "MSP, promised with 95 %: MAPIE 1.6": mapie_msp,
    "**MSP and KNN, promised with 95 %: demur**": promised_pair,
}


def _tuned(sample: dm.Sample, search: dm.Exact | dm.Grid) -> dm.Rule | None:
    try:
        return dm.tune(sample, ASKED, search=search).rule
    except dm.InfeasibleError:
        return None


def table(draws: int) -> str:
    """Return the table in Markdown: means over the draws, give or take two standard errors."""
    seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in METHODS}
    for seed in range(draws):
        done = demo.run(seed)
        parts = [part.sample(("msp", "knn")) for part in (done.tune, done.test)]
        for name, method in METHODS.items():
            rule = method(parts[0], seed)
            if rule is not None:
                single = len(rule.direction) == 1
                point = dm.evaluate(rule, parts[1].score(0) if single else parts[1])
                seen[name].append((point.tpr, point.fpr, point.selective_risk))
    lines = [
        "| rule, asked for TPR ≥ 75 %, FPR ≤ 25 % | found | TPR | FPR | wrong among answers |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, points in seen.items():
        cells = [_cell(np.array(column)) for column in zip(*points, strict=True)] or ["-"] * 3
        lines.append(f"| {name} | {len(points)} of {draws} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: np.ndarray) -> str:
    error = 2 * values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{100 * values.mean():.1f} ± {100 * error:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    print(table(parser.parse_args().draws))


if __name__ == "__main__":
    main()
