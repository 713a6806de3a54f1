"""The documentation lists what the code converts; run this file to bring it up to date."""

import json
from pathlib import Path

from test_mxnet_probes import PROBES

from weft.frontend.mxnet.attributes import real_name
from weft.frontend.mxnet.coverage import coverage_table
from weft.frontend.mxnet.registry import TABLE

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "from-mxnet.md"
START = '"As" names the weft operator where it is the same; the others are built from several.\n\n'


def test_the_table_in_the_documentation_is_current():
    _, found, table = DOCUMENT.read_text().partition(START)
    assert found
    assert table == coverage_table()
    assert "| `Convolution` |" in table


# MXNet puts these into graphs itself; it does not run them by their names.
UNPROBED = {"_CrossDeviceCopy", "_zeros_without_dtype"}
RANDOM = ("_random_", "_sample_")  # of which test_mxnet_random.py compares distributions


def test_every_operator_is_compared_with_mxnet():
    graphs = [json.loads(str(probe["json"])) for probe in PROBES.values()]
    probed = {real_name(node["op"]) for graph in graphs for node in graph["nodes"]}
    left = {name for name in set(TABLE.supported()) - probed if not name.startswith(RANDOM)}
    assert left == UNPROBED


if __name__ == "__main__":
    head, found, _ = DOCUMENT.read_text().partition(START)
    DOCUMENT.write_text(head + found + coverage_table())
