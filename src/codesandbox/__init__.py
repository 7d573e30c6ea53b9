"""Untrusted programs, run in guarded processes of the standard library alone. See README.md."""

from codesandbox.code import CodeResult, run_calls, run_stdio, run_tests, valid_tests
from codesandbox.pool import SandboxError
from codesandbox.trusted import Trusted

__all__ = ["CodeResult", "SandboxError", "Trusted", "run_calls", "run_stdio", "run_tests", "valid_tests"]
