"""A run's files: metrics, episodes and checkpoints, and how they are displayed."""
