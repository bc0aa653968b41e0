"""The paper's experiments, as users of the public names; `demur reproduce` runs them."""

__all__: list[str] = []


def __dir__() -> list[str]:
    return __all__
