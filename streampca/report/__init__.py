"""The report page and the printed figures of a result."""

from streampca.report.page import write_report
from streampca.report.printing import check_picture, draw_figure

__all__ = ["check_picture", "draw_figure", "write_report"]
