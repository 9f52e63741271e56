"""Plans for training steps: Alpa's two passes, and what they are compared with."""
