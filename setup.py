"""Build the optional compiled engine; without a C compiler the NumPy engine is used."""

from pathlib import Path

from setuptools import Extension, setup

sources = Path("src/demur/_kernels/csrc")

setup(
    ext_modules=[
        Extension(
            "demur._kernels._engine",
            sources=sorted(path.as_posix() for path in sources.glob("*.c")),
            depends=sorted(path.as_posix() for path in sources.glob("*.h")),
            # x + t*y must round twice, as it does in NumPy: a fused operation rounds once.
            extra_compile_args=["-std=c99", "-O3", "-ffp-contract=off", "-fvisibility=hidden"],
            optional=True,
        )
    ]
)
