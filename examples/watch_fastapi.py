"""A service that decides, takes labels of audited inputs later, and shows metrics to Prometheus.

Run it with ``uvicorn watch_fastapi:app``; it needs the package fastapi.
"""

import random
from datetime import date
from threading import Lock

from fastapi import FastAPI, Response
from watch_task import rule  # yours

from demur import Bound
from demur.watch import Watch

AUDITED = 0.1
app = FastAPI()
lock = Lock()
watch = Watch(rule, expect=[Bound("selective_risk", at_most=0.08)], ood_prior=(0.05, 0.15))


@app.post("/decide/{key}")
def decide(key: str, scores: list[float]) -> dict[str, bool]:
    """Return whether to answer, and whether the input was chosen for an audit."""
    audited = random.random() < AUDITED
    with lock:
        watch.update([scores], audited=[audited], time=date.today().isoformat(), ids=[key])
    return {"accept": rule.accept_one(scores), "audit": audited}


@app.post("/label/{key}")
def label(key: str, loss: float | None = None, is_ood: bool = False) -> dict[str, bool]:
    """Take what an auditor found."""
    with lock:
        status = watch.label([key], loss=[loss], is_ood=[is_ood])
        return {"alarm": bool(status.alarms)}


@app.get("/metrics")
def metrics() -> Response:
    """Return what Prometheus collects and Grafana draws."""
    with lock:
        return Response(watch.status().to_prometheus(), media_type="text/plain; version=0.0.4")
