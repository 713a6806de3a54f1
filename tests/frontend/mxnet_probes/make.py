"""Writes mxnet_probes.npz: small graphs with inputs, and the outputs of the real MXNet 1.9.1.

Run it with a Python that has mxnet==1.9.1 and numpy==1.23.5:

    python tests/frontend/mxnet_probes/make.py

Each probe NAME has NAME/json, an input or parameter NAME/in/VARIABLE each, and NAME/out/0, 1...
Variables x, y, z are inputs of the imported model; all others are parameters.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import probe_elements
import probe_layers
import probe_numpy
import probe_regions
import probe_shapes
from probing import PROBES

MODULES = (probe_elements, probe_shapes, probe_layers, probe_regions, probe_numpy)
SECTIONS = {
    "1": "unary scalars binary shapes reductions outputs layers pools images indices attention "
    "recurrent detection deformable regions proposals "
    "control_flow numpy_ops spatial losses",
    "0": "target_shape rarely",
}


def main():
    """With oneDNN as MXNet is installed, but for what fails with it."""
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for with_onednn, sections in SECTIONS.items():
            path = Path(folder) / f"{with_onednn}.npz"
            env = {**os.environ, "MXNET_MKLDNN_ENABLED": with_onednn}
            subprocess.run([sys.executable, __file__, str(path), *sections.split()], env=env, check=True)
            rows.update(np.load(path))
    np.savez_compressed(Path(__file__).parent.with_name("mxnet_probes.npz"), **rows)
    print(len({key.split("/")[0] for key in rows}), "probes")


def write(path, sections):
    known = {name: function for module in MODULES for name, function in vars(module).items()}
    for section in sections:
        known[section]()
    rows = {f"{name}/{key}": value for name, row in PROBES.items() for key, value in row.items()}
    np.savez(path, **rows)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else main()
