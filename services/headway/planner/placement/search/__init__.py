"""Searches which models share which groups of devices, so that most requests keep their SLO. Pure."""

from headway.planner.placement.search.options import BetterPlacement, Found, SearchOptions, Selection
from headway.planner.placement.search.search import search, search_kinds

__all__ = ["BetterPlacement", "Found", "SearchOptions", "Selection", "search", "search_kinds"]
