"""A torch model and two loaders become a selective classifier, in a file and as ONNX."""

import numpy as np
from torch_task import id_loader, model, ood_loader  # yours

import demur as dm
from demur.adapters.torch import SelectiveModule, extract
from demur.detectors import Knn, msp

rows, foreign = extract(model, id_loader), extract(model, ood_loader)
bank, valid = rows.take(slice(0, None, 2)), rows.take(slice(1, None, 2))
knn = Knn(k=10).fit(bank)


def doubts(rows):
    """Return the risk score and the OOD score of each row."""
    return np.column_stack([msp(rows.logits), knn.score(rows)])


sample = dm.Sample.from_predictions(
    doubts(valid), valid.labels, valid.logits.argmax(axis=1), ood_scores=doubts(foreign)
)
tuned = dm.tune(sample, dm.TprFprModel(min_tpr=0.8, max_fpr=0.3))
print(f"accepts {tuned.point.tpr:.0%} of ID with {tuned.point.selective_risk:.1%} errors")

guard = SelectiveModule(model, {"msp": "msp", "knn": knn}, tuned.rule)
guard.save("guard.safetensors")
guard = SelectiveModule.load("guard.safetensors", model)
images = next(iter(ood_loader))[0]
guard.to_onnx("guard.onnx", images)
prediction, accept = guard(images)
print(f"rejects {(~accept).sum()} of {len(images)} foreign images")
