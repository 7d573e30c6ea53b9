"""Pure reward functions over parsed values; none of them generates text or knows a model."""
