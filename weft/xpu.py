"""What there is of XPU devices, asked truthfully: there are none, and what needs one says so."""

from .eager.torch_core.absent import names_of as _names_of

globals().update(_names_of("xpu"))
__all__ = sorted(_names_of("xpu"))
