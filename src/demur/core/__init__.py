"""Samples, models, rules and rates; the public ones are names of `demur` itself."""

__all__: list[str] = []


def __dir__() -> list[str]:
    return __all__
