"""Build the optional compiled engine; without a C compiler the NumPy engine is used."""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sources = Path("src/demur/_kernels/csrc")

# x + t*y must round twice, as it does in NumPy: a fused operation rounds once.
GCC_OPTIONS = ["-std=c11", "-O3", "-ffp-contract=off", "-fvisibility=hidden"]
MSVC_OPTIONS = ["/std:c11", "/O2", "/fp:precise"]


class BuildEngine(build_ext):
    """Gives each compiler the options it knows."""

    def build_extension(self, ext: Extension) -> None:
        """Build the engine."""
        msvc = self.compiler.compiler_type == "msvc"
        ext.extra_compile_args = MSVC_OPTIONS if msvc else GCC_OPTIONS
        super().build_extension(ext)


setup(
    cmdclass={"build_ext": BuildEngine},
    ext_modules=[
        Extension(
            "demur._kernels._engine",
            sources=sorted(path.as_posix() for path in sources.glob("*.c")),
            depends=sorted(path.as_posix() for path in sources.glob("*.h")),
            optional=True,
        )
    ],
)
