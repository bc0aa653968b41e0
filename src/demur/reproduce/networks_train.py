"""The LeNet of the table from scratch, for those who want no published weights."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import torch
from torch import nn

from demur.reproduce.data_images import Pixels, Transform
from demur.reproduce.data_sets import ImageSet, Labels
from demur.reproduce.networks_weights import model_tensors, put_tensors, tensor_digest
from demur.reproduce.table2_cache import Arrays, Cache

BATCH = 128
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.05, 0.9, 5e-4


def trained_lenet(
    model: nn.Module,
    images: ImageSet,
    transform: Transform,
    cache: Cache,
    *,
    epochs: int,
    seed: int = 0,
) -> str:
    """Train a model on a data set, or read the weights of an earlier run; return their digest."""
    inputs = {
        "images": images.fingerprint(),
        "transform": asdict(transform),
        "epochs": epochs,
        "seed": seed,
    }

    def compute() -> Arrays:
        pixels, labels = images.load()
        fit(model, pixels, labels, transform, epochs=epochs, seed=seed, cache=cache)
        return model_tensors(model)

    tensors = cache.whole("lenet-trained", inputs, compute)
    put_tensors(model, tensors)
    model.eval()
    return tensor_digest(tensors)


def fit(
    model: nn.Module,
    pixels: Pixels,
    labels: Labels,
    transform: Transform,
    *,
    epochs: int,
    seed: int,
    cache: Cache,
) -> None:
    """Train by SGD with momentum and a rate that falls along a half cosine."""
    generator = torch.Generator().manual_seed(seed)
    _start(model, generator)
    optimiser = torch.optim.SGD(
        model.parameters(), LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    steps = epochs * -(-len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, steps))
    model.train()
    for epoch in range(epochs):
        order = torch.randperm(len(labels), generator=generator).numpy()
        for start in range(0, len(order), BATCH):
            rows = np.sort(order[start : start + BATCH])
            logits = model(torch.from_numpy(transform.apply(pixels[rows])))
            loss = nn.functional.cross_entropy(logits, torch.from_numpy(labels[rows]))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
        if cache.notify is not None:
            cache.notify("train: epoch", epoch + 1, epochs)


def _start(model: nn.Module, generator: torch.Generator) -> None:
    """Draw starting weights, the same for the same seed whatever ran before."""
    for part in model.modules():
        if isinstance(part, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_uniform_(part.weight, nonlinearity="relu", generator=generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
