"""Searches for NaN in backward passes, and tells where it comes from."""

from ..eager.autograd.anomaly import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
