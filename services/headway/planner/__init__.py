"""The planner: makes plans, checks them and explains them. It applies nothing."""
