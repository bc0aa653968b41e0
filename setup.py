"""Build the optional compiled engine; without a C compiler the NumPy engine is used."""

import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sources = Path("src/demur/_kernels/csrc")

# x + t*y must round twice, as it does in NumPy: a fused operation rounds once.
GCC_OPTIONS = ["-std=c11", "-O3", "-ffp-contract=off", "-fvisibility=hidden"]
MSVC_OPTIONS = ["/std:c11", "/O2", "/fp:precise"]
# One wheel a platform serves CPython 3.11 and all later ones. Free-threaded builds of CPython have
# no stable ABI, so they get an engine of their own.
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")


class BuildEngine(build_ext):
    """Gives each compiler the options it knows."""

    def build_extension(self, ext: Extension) -> None:
        """Build the engine."""
        msvc = self.compiler.compiler_type == "msvc"
        ext.extra_compile_args = MSVC_OPTIONS if msvc else GCC_OPTIONS
        super().build_extension(ext)
        # One that an earlier setup.py left beside the source has a longer name and would win.
        built = Path(self.get_ext_fullpath(ext.name)).name
        for kind in ("so", "pyd"):
            for path in Path("src/demur/_kernels").glob(f"_engine.*.{kind}"):
                if path.name != built:
                    path.unlink()


setup(
    cmdclass={"build_ext": BuildEngine},
    ext_modules=[
        Extension(
            "demur._kernels._engine",
            sources=sorted(path.as_posix() for path in sources.glob("*.c")),
            depends=sorted(path.as_posix() for path in sources.glob("*.h")),
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE else [],
            py_limited_api=STABLE,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {},
)
