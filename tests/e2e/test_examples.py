"""The examples run as they are, are as short as promised, and leave files that work."""

import ast
import asyncio
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import onnxruntime
import pytest
import torch

import demur
from demur.adapters.torch import SelectiveModule

EXAMPLES = Path(__file__).parents[2] / "examples"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(demur.__file__).parents[1])}


def run(name, folder):
    command = [sys.executable, "-W", "error::UserWarning", str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_every_example_is_below_sixty_lines_and_known():
    listed = (EXAMPLES.parent / "docs" / "tutorials" / "index.md").read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) < 60, path.name
        # A task is what an example works on.
        assert path.stem.endswith("_task") or f"examples/{path.name})" in listed, path.name


def test_a_module_that_takes_a_dict(tmp_path):
    accepted, rejected = run("hf_selective.py", tmp_path).splitlines()
    assert int(accepted.split()[1].rstrip("%")) >= 60
    assert int(rejected.split()[1]) > 32


def test_answers_of_a_language_model(tmp_path):
    printed = run("llm_jsonl.py", tmp_path).splitlines()
    assert 0 < float(printed[0].split()[3]) < 0.15
    assert printed[1:] == ["It opened in 1889.", "I do not know."]


def test_a_dbt_model(tmp_path):
    assert run("dbt_model.py", tmp_path).splitlines() == [
        "0.1 -0.2 answer",
        "4.0 5.0 ask a person",
    ]
    model = (tmp_path / "models" / "decided_inputs.sql").read_text()
    assert "{{ ref('scored_inputs') }}" in model and " as accept" in model


def test_rows_in_spark(tmp_path):
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    environment = ENVIRONMENT | {"PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(EXAMPLES / "spark_lake.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    first, *shares = done.stdout.splitlines()
    tpr, fpr = (word for word in first.split() if word.endswith("%"))
    # What SQL accepts in Spark is what the rule was said to accept.
    assert sorted(shares) == [f"ID {tpr}", f"OOD {fpr}"]
    assert float(tpr.rstrip("%")) >= 80 and float(fpr.rstrip("%")) <= 10


@pytest.mark.parametrize(("name", "limit"), [("torch_selective", 25), ("sklearn_selective", 10)])
def test_examples_are_short(name, limit):
    source = (EXAMPLES / f"{name}.py").read_text()
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    lines = [
        line
        for number, line in enumerate(source.splitlines(), start=1)
        if line.strip() and not line.strip().startswith("#") and number not in docstrings
    ]
    assert len(lines) < limit


def test_torch(tmp_path):
    printed = run("torch_selective.py", tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["guard.onnx", "guard.safetensors"]
    assert printed.startswith("accepts ") and " foreign images" in printed
    task = runpy.run_path(str(EXAMPLES / "torch_task.py"))
    guard = SelectiveModule.load(tmp_path / "guard.safetensors", task["model"])
    session = onnxruntime.InferenceSession(tmp_path / "guard.onnx")
    accepted = {}
    for side in ("id_loader", "ood_loader"):
        inputs = torch.cat([images for images, _ in task[side]])
        with torch.no_grad():
            prediction, accept = guard(inputs)
        outputs = session.run(["prediction", "accept"], {"input": inputs.numpy()})
        np.testing.assert_array_equal(outputs[0], prediction.numpy())
        np.testing.assert_array_equal(outputs[1], accept.numpy())
        accepted[side] = accept.numpy()
    # The bounds hold on the validation half, by which the rule was tuned.
    assert accepted["id_loader"][1::2].mean() >= 0.8
    assert accepted["ood_loader"].mean() <= 0.3


def test_sklearn(tmp_path, monkeypatch):
    run("sklearn_selective.py", tmp_path)
    selective = joblib.load(tmp_path / "selective.joblib")
    task = runpy.run_path(str(EXAMPLES / "sklearn_task.py"))
    assert selective.tuning_.point.tpr >= 0.8 and selective.tuning_.point.fpr <= 0.1
    predicted = selective.predict(task["X_ood"])
    assert set(predicted.tolist()) <= set(range(-1, 8)) and (predicted == -1).mean() > 0.8


def test_a_watched_stream(tmp_path):
    printed = run("watch_stream.py", tmp_path)
    # The scores move after 2,000 inputs.
    found = int(printed.split()[1])
    assert 2000 < found <= 4000
    assert "about row 2001. The scores changed" in printed
    assert demur.watch.Watch.load(tmp_path / "watch.json").status().rows == found


def test_a_watched_service(monkeypatch):
    import httpx

    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr("random.random", lambda: 0.0)
    service = runpy.run_path(str(EXAMPLES / "watch_fastapi.py"))
    transport = httpx.ASGITransport(service["app"])

    def ask(method, address, **more):
        async def answer():
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                return await client.request(method, address, **more)

        return asyncio.run(answer())

    for k in range(5):
        decided = ask("POST", f"/decide/image-{k}", json=[0.1, 0.2]).json()
        assert decided == {"accept": True, "audit": True}
    # The second label waits for the first.
    assert ask("POST", "/label/image-1", params={"loss": 0}).json() == {"alarm": False}
    assert service["watch"].status().watched[0].rows == 0
    ask("POST", "/label/image-0", params={"loss": 1})
    assert service["watch"].status().watched[0].rows == 2
    metrics = ask("GET", "/metrics").text
    assert "demur_watch_rows 5.0" in metrics
    assert "demur_watch_pending_audits 3.0" in metrics
