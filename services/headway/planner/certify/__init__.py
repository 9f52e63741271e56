"""Independent checks of plans, and the reasons behind them. Shares no arithmetic with the rooms that make plans."""
