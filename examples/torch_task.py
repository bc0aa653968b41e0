"""Stands in for yours: a network that is trained, a loader of ID data and one of OOD data."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
PATTERNS = torch.randn(6, 1, 8, 8)  # four classes, and two kinds of images that are none


def images_of(kinds: torch.Tensor) -> torch.Tensor:
    """Return noisy images of the patterns."""
    return PATTERNS[kinds] + 2.0 * torch.randn(len(kinds), 1, 8, 8)


def loader(first: int, last: int, count: int) -> DataLoader:
    """Return batches of images of the kinds `first` to `last`."""
    kinds = torch.randint(first, last, (count,))
    return DataLoader(TensorDataset(images_of(kinds), kinds), batch_size=64)


model = nn.Sequential(
    *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten()),
    *(nn.Linear(288, 32), nn.ReLU(), nn.Linear(32, 4)),
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
for images, labels in loader(0, 4, 4000):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()

id_loader, ood_loader = loader(0, 4, 1000), loader(4, 6, 500)
