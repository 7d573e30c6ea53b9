"""Code of the guarded processes: standard library only, importable without `codesandbox`."""
