"""The report on a tuned rule: plain data, and pages and texts made of them."""

from demur.report.report import Report

__all__ = ["Report"]


def __dir__() -> list[str]:
    return __all__
