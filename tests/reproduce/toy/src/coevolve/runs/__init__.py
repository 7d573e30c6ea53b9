"""Part of the toy package."""
