"""The rooms of promises and of known problems show their public names, and nothing else."""

import inspect
import subprocess
import sys

import pytest

from demur import guarantees, population


@pytest.mark.parametrize("room", [guarantees, population])
def test_dir_shows_the_public_names_and_each_is_there(room):
    assert dir(room) == sorted(room.__all__)
    for name in room.__all__:
        found = getattr(room, name)
        assert not inspect.ismodule(found), name
        if inspect.isclass(found) or inspect.isfunction(found):
            assert found.__module__.startswith(f"{room.__name__}.")
            assert inspect.getdoc(found), name
    with pytest.raises(AttributeError, match="nothing"):
        room.nothing  # noqa: B018


def test_public_functions_are_annotated_throughout():
    for name in guarantees.__all__:
        found = getattr(guarantees, name)
        if inspect.isfunction(found):
            signature = inspect.signature(found)
            assert signature.return_annotation is not signature.empty, name
            for parameter in signature.parameters.values():
                assert parameter.annotation is not parameter.empty, (name, parameter)


def test_a_public_name_is_never_hidden_by_a_module_of_the_same_name():
    # Functions are looked up when first used; by then any module may have been imported.
    code = (
        "import pkgutil, importlib, demur.guarantees as room;"
        "found = pkgutil.walk_packages(room.__path__, 'demur.guarantees.');"
        "[importlib.import_module(module.name) for module in found];"
        "assert all(callable(getattr(room, name)) for name in room.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_results_of_resampling_keep_their_first_name():
    assert guarantees.Measure is guarantees.ResampledRate
