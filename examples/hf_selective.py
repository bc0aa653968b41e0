"""A module that takes a dict, as those of Hugging Face do, becomes a selective one."""

import numpy as np
import torch
from torch import nn

import demur as dm
from demur.adapters.torch import SelectiveModule, extract
from demur.detectors import Knn, msp

torch.manual_seed(0)


class TextClassifier(nn.Module):
    """Stands in for yours: token ids and a mask in, logits of three topics out."""

    def __init__(self):
        """Make embeddings and a head."""
        super().__init__()
        self.words, self.head = nn.Embedding(80, 16), nn.Linear(16, 3)

    def forward(self, input_ids, attention_mask):
        """Average the words that are there."""
        mask = attention_mask.unsqueeze(-1).float()
        return self.head((self.words(input_ids) * mask).sum(1) / mask.sum(1))


def texts(first, last, count):
    """Return batches of texts whose words are mostly of their topic."""
    kind = torch.randint(first, last, (count,))
    words = torch.randint(0, 80, (count, 12))
    own = torch.rand(count, 12) < 0.4
    words[own] = (kind[:, None] * 20 + words % 20)[own]
    mask = (torch.arange(12) < torch.randint(6, 13, (count, 1))).long()
    names = ("input_ids", "attention_mask", "labels")
    parts = zip(words.split(64), mask.split(64), kind.split(64), strict=True)
    return [dict(zip(names, part, strict=True)) for part in parts]


model = TextClassifier()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for batch in texts(0, 3, 6000):
    optimizer.zero_grad()
    logits = model(batch["input_ids"], batch["attention_mask"])
    nn.functional.cross_entropy(logits, batch["labels"]).backward()
    optimizer.step()

train, valid = extract(model, texts(0, 3, 1000)), extract(model, texts(0, 3, 1000))
foreign = extract(model, texts(3, 4, 500))
knn = Knn(k=10).fit(train)
doubts, others = (np.column_stack([msp(r.logits), knn.score(r)]) for r in (valid, foreign))
answers = valid.logits.argmax(axis=1)
sample = dm.Sample.from_predictions(doubts, valid.labels, answers, ood_scores=others)
tuned = dm.tune(sample, dm.TprFprModel(min_tpr=0.6, max_fpr=0.5))
guard = SelectiveModule(model, {"msp": "msp", "knn": knn}, tuned.rule)
prediction, accept = guard(texts(3, 4, 64)[0])  # a dict, of which the labels are left out
print(f"accepts {tuned.point.tpr:.0%} of known texts")
print(f"rejects {int((~accept).sum())} of 64 texts on a foreign topic")
