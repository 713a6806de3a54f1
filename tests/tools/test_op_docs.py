"""The pages of docs/ops say what the operators are now."""

from pathlib import Path

import numpy as np

from weft import ops
from weft.core.op import Op
from weft.tools import op_docs

FOLDER = Path(__file__).parent.parent.parent / "docs" / "ops"


def test_pages_are_up_to_date():
    written = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
    made = op_docs.pages()
    assert sorted(written) == sorted(made), "run `make docs`"
    stale = [name for name, text in made.items() if written[name] != text]
    assert not stale, "run `make docs`"


def test_every_operator_is_on_one_page():
    members = [op.name for page in op_docs.families().values() for op in page]
    assert len(members) == len(set(members))
    assert {"relu", "conv2d", "non_max_suppression", "broadcast_add", "group_norm"} <= set(members)


def test_an_operator_is_on_the_page_of_the_file_that_registers_it():
    """Whether or not it has a name there, and whichever file its rules are made in."""
    sources = {
        op_docs.PAGE_NAMES.get(path.stem, path.stem): path.read_text()
        for path in Path(ops.__file__).parent.rglob("*.py")
    }
    for family, members in op_docs.families().items():
        for op in members:
            written = [stem for stem, text in sources.items() if f'"{op.name}"' in text]
            assert family in written or not written  # some have names that are put together


def test_every_operator_with_a_value_has_an_example():
    public = [op for page in op_docs.families().values() for op in page if not op_docs._is_internal(op)]
    without = {op.name for op in public if op_docs.example(op) is None}
    with_subgraphs = {"scan", "while_loop", "cond"}
    assert without == {"__undef__", "tvm_op", *with_subgraphs}  # tvm_op is code of a library


def test_examples_show_values():
    made = op_docs.example(Op.get("elemwise_add"))
    np.testing.assert_array_equal(made.outputs[0], made.inputs[0] + made.inputs[1])
    text = op_docs.pages()["activation.md"]
    assert "`leaky_relu(data, alpha=0.25)`" in text


def test_pages_of_no_family_are_removed(tmp_path):
    (tmp_path / "gone.md").write_text("# gone")
    op_docs.write(tmp_path)
    assert not (tmp_path / "gone.md").exists()
    assert (tmp_path / "README.md").read_text().startswith("# Operators")
