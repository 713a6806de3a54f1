"""The runtime of GPUs, whole: what executes programs, and what times their steps."""

from __future__ import annotations

from dataclasses import replace

from .executor import RUNTIME as EXECUTION
from .profile import profile

RUNTIME = replace(EXECUTION, profile=profile)
