"""Answers of a language model as JSON lines become a rule that says "I do not know"."""

import json
import random

import demur as dm

random.seed(0)


def answered(number):
    """Stand in for yours: one line for each question of an evaluation."""
    unanswerable = number % 3 == 0
    wrong = not unanswerable and random.random() < 0.15
    return {
        "question": f"question {number}",
        "surprise": random.gammavariate(1 + 2 * wrong + unanswerable, 1.0),
        "distance": random.gauss(1.5 if unanswerable else 0.0, 0.6),
        "is_wrong": None if unanswerable else int(wrong),
        "set": "unanswerable" if unanswerable else "id",
    }


with open("answers.jsonl", "w") as file:
    file.writelines(json.dumps(answered(number)) + "\n" for number in range(1500))

with open("answers.jsonl") as file:
    rows = [json.loads(line) for line in file]
known = [row for row in rows if row["set"] == "id"]
foreign = [row for row in rows if row["set"] != "id"]
names = ("surprise", "distance")
sample = dm.Sample(
    [[row[name] for name in names] for row in known],
    [row["is_wrong"] for row in known],
    {"unanswerable": [[row[name] for name in names] for row in foreign]},
    score_names=names,
)
found = dm.guarantees.tune_certified(sample, dm.TprFprModel(min_tpr=0.6, max_fpr=0.2), rng=0)
print(f"promised: at most {found.selective_risk:.3f} of the answers are wrong")
found.rule.save("rule.json")

rule = dm.Rule.load("rule.json")
for doubts in ({"surprise": 0.2, "distance": -0.5}, {"surprise": 0.2, "distance": 2.5}):
    print("It opened in 1889." if rule.accept_one(doubts) else "I do not know.")
