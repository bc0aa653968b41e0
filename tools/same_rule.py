"""Tune rules on fixed data with whatever demur is installed, and print them.

    python tools/same_rule.py --engine compiled

Every installation has to print the same: any CPython, with and without the compiled engine.
"""

import argparse
import json

import numpy as np

import demur as dm
from demur._kernels.engines import engine_name


def rules() -> list[str]:
    """Return tuned rules as they would be saved, without the date."""
    # Whole numbers and halves: no generator and no library of mathematics has a say.
    grid = np.arange(600)
    id_scores = np.column_stack([(grid * 37) % 101, (grid * 61) % 211 / 2])
    wrong = (grid * 37) % 101 + (grid * 17) % 23 > 95
    ood_scores = np.column_stack([(grid * 29) % 97 + 20, (grid * 53) % 199 / 2 + 60])
    sample = dm.Sample(id_scores, wrong, ood_scores, score_names=("msp", "knn"))
    found = []
    for model in (
        dm.TprFprModel(0.7, 0.3),
        dm.PrecisionRecallModel(0.9, 0.5, ood_prior=0.25),
        dm.CostModel(reject_id=0.1, accept_ood=1, reject_ood=0, ood_prior=0.2),
        dm.RiskFprModel(0.05, 0.4),
    ):
        tuned = dm.tune(sample, model)
        rule = json.loads(tuned.rule.to_json())
        found.append(json.dumps([rule["direction"], rule["threshold"], str(tuned.point)]))
    return found


def main() -> None:
    """Print the engine and the rules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("compiled", "numpy"), help="the one that must be used")
    wanted = parser.parse_args().engine
    if wanted and engine_name() != wanted:
        raise SystemExit(f"the engine is {engine_name()}, not {wanted}")
    print("\n".join(rules()))


if __name__ == "__main__":
    main()
