"""What runs inside the guarded process: standard library only, importable by itself."""
