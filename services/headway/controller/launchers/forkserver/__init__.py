"""A process that imports what others need and becomes them by forking: they start at once and share its memory."""
