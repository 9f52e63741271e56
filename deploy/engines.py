"""The table of docs/engines.md, from what the engines declare: `python -m deploy.engines` writes it anew."""

from pathlib import Path

from headway.core.engine_kind import FEATURES, WORDS, EngineKind, Feature

PAGE = Path(__file__).resolve().parents[1] / "docs" / "engines.md"
_BEGIN = "<!-- features: python -m deploy.engines -->"
_END = "<!-- end of features -->"


def feature_table() -> str:
    """One row for each feature, one column for each engine."""
    head = " | ".join(("feature", *EngineKind, "what it is"))
    rows = (
        " | ".join(
            (f"`{feature}`", *("yes" if feature in FEATURES[kind] else "no" for kind in EngineKind), WORDS[feature])
        )
        for feature in Feature
    )
    return "\n".join((f"| {head} |", "|" + "---|" * (len(EngineKind) + 2), *(f"| {row} |" for row in rows)))


def page_with_table(page: str) -> str:
    """The page with the table as it should be."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{feature_table()}\n{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
