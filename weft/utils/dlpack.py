"""Memory that is shared with other libraries, by DLPack's capsules.

>>> import numpy as np
>>> from_dlpack(np.arange(3))
tensor([0, 1, 2])
"""

from ..eager.functions.create.exchange import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
