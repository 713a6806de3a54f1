"""Images and regions of them: sampling, resizing, detection (boxes, proposals, suppression), pools over regions."""

from . import (
    bilinear,
    correlation,
    deformable_pool,
    grid_sample,
    image,
    multibox,
    proposal,
    reorg,
    roi,
    roi_max,
    roi_pool,
    suppress,
)
