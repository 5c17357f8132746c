"""The report of a run: one page for a privacy officer, ten lines for a terminal, one JSON file."""

from tasks.reporting.page import UnsourcedFigureError, concise, render, write_report

__all__ = ["UnsourcedFigureError", "concise", "render", "write_report"]
