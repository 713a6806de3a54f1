"""Programs as objects: the ordered form of a program, its types and schemas."""

from .compile.tracing import trace as trace
