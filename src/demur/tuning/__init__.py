"""From a sample and a model to a rule; the public names are those of `demur` itself."""

__all__: list[str] = []


def __dir__() -> list[str]:
    return __all__
