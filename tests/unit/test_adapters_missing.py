"""Adapters whose package is missing name the extra that brings it; demur itself needs none."""

import subprocess
import sys
import textwrap

import pytest

BLOCK = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
import demur as dm
"""


def run(code, *blocked):
    script = BLOCK.format(blocked=blocked) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("torch", "torch", "torch"), ("sklearn", "sklearn", "sklearn")],
)
def test_the_adapter_names_its_extra(module, package, extra):
    code = f"""
    try:
        import demur.adapters.{module}
    except dm.MissingExtraError as error:
        print(error)
    import demur.adapters.openood
    """
    assert f"pip install 'demur[{extra}]'" in run(code, package)


@pytest.mark.parametrize("package", ["onnxruntime", "safetensors"])
def test_files_name_their_extra(package, tmp_path):
    code = f"""
    import torch
    from demur.adapters.torch import SelectiveModule
    module = SelectiveModule(torch.nn.Linear(2, 2), ["msp"], dm.Rule((1.0,), 0.5))
    for write in (module.save, lambda path: module.to_onnx(path, torch.zeros(2, 2))):
        try:
            write({str(tmp_path / "file")!r})
        except dm.MissingExtraError as error:
            print(error)
            break
    """
    extra = "torch" if package == "safetensors" else "onnx"
    assert f"{package!r}, which is not installed" in (out := run(code, package))
    assert f"'demur[{extra}]'" in out


def test_adapters_are_attributes_of_demur():
    code = """
    print(dir(dm.adapters), "sklearn" in sys.modules)
    print(dm.adapters.sklearn.SelectiveClassifier.__name__, "torch" in sys.modules)
    print(dm.adapters.torch.SelectiveModule.__name__)
    print(dm.adapters.openood.sample_from_openood.__name__)
    print(hasattr(dm.adapters, "keras"))
    """
    assert run(code).split("\n") == [
        "['llm', 'openood', 'sklearn', 'torch'] False",
        "SelectiveClassifier False",
        "SelectiveModule",
        "sample_from_openood",
        "False",
        "",
    ]


def test_import_brings_no_framework():
    code = """
    import demur.adapters
    print(sorted({"torch", "sklearn", "onnx", "safetensors"} & set(sys.modules)))
    """
    assert run(code) == "[]\n"
