"""The search for a placement: which models share which groups of devices, so that most requests meet their SLO.
Pure.
"""

from headway.planner.placement.search.options import Found, SearchOptions, SearchProgress, Selection
from headway.planner.placement.search.search import search, search_kinds

__all__ = ["Found", "SearchOptions", "SearchProgress", "Selection", "search", "search_kinds"]
