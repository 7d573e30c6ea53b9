"""Run untrusted programs in guarded processes; the standard library is enough. See README.md."""

from codesandbox.code import CodeResult, run_calls, run_stdio, run_tests, valid_tests
from codesandbox.pool import SandboxError
from codesandbox.trusted import Trusted

__all__ = [
    "CodeResult",
    "SandboxError",
    "Trusted",
    "run_calls",
    "run_stdio",
    "run_tests",
    "valid_tests",
]
