"""The files of a run: metrics, episodes, checkpoints, and how they are shown."""
