"""Training: configuration, the loop, one step of learning."""
