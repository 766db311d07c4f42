"""The offline report: one HTML file that holds its data, its charts and its definitions, and loads nothing."""

from netprof.views.html.page import render, write

__all__ = ["render", "write"]
