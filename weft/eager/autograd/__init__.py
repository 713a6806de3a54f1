"""Gradients. A recorded call is a node (`node.py`) with edges to the nodes of its inputs; its rule
is a graph that `derivative.py` got by running it once on variables. `engine.py` runs nodes
from outputs to leaves; `backward.py` is how users start it, `modes.py` whether calls record at all.
`view_writes.py` follows writes through views, `differentials.py` makes matrices of derivatives,
`gradcheck.py` compares with differences, `function.py` is for rules that users write."""
