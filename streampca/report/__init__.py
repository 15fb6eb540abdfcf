"""A result as one page to look at: scores, spectrum, loadings, and where they come from, in a file of its own."""

from streampca.report.page import write_report

__all__ = ["write_report"]
