"""The embedded world: procedural task families, an exact oracle, and the backbones that speak its language."""
