"""What there is of accelerators, asked truthfully: there are none, and what needs one says so."""

from .eager.torch_core.absent import names_of as _names_of

_NAMES = _names_of("accelerator")
globals().update(_NAMES)
__all__ = sorted(_NAMES)
