"""The documentation lists what the code converts; run this file to bring it up to date."""

from pathlib import Path

from weft.frontend.mxnet.coverage import coverage_table

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "from-mxnet.md"
START = '"As" names the weft operator where it is the same; the others are built from several.\n\n'


def test_the_table_in_the_documentation_is_current():
    _, found, table = DOCUMENT.read_text().partition(START)
    assert found
    assert table == coverage_table()
    assert "| `Convolution` |" in table


if __name__ == "__main__":
    head, found, _ = DOCUMENT.read_text().partition(START)
    DOCUMENT.write_text(head + found + coverage_table())
