"""MXNet files leave shapes open: nothing asks for them before the model runs. numpy says what is right."""

from __future__ import annotations

import json

import numpy as np

import weft


def chain(*nodes: tuple[str, dict[str, str]]) -> str:
    """The file of operators that each read the one before, from a variable x."""
    rows = [{"op": "null", "name": "x", "inputs": []}]
    for number, (op, attrs) in enumerate(nodes):
        rows.append({"op": op, "name": f"n{number}", "attrs": attrs, "inputs": [[number, 0, 0]]})
    fields = {"nodes": rows, "arg_nodes": [0], "heads": [[len(nodes), 0, 0]]}
    return json.dumps({**fields, "attrs": {"mxnet_version": ["int", 10901]}})


def test_one_model_answers_every_shape(rng: np.random.Generator) -> None:
    text = chain(("depth_to_space", {"block_size": "2"}), ("Flatten", {}), ("softmax", {"axis": "-1"}))
    model = weft.compile(weft.frontend.from_mxnet(text))
    assert {node.attrs["importer"] for node in nodes_of(model, "deferred")} == {"mxnet"}
    for batch, height, width in ((2, 3, 2), (1, 2, 4), (2, 3, 2)):
        x = rng.standard_normal((batch, 8, height, width)).astype("float32")
        blocks = x.reshape(batch, 2, 2, 2, height, width).transpose(0, 3, 4, 1, 5, 2)
        expected = np.exp(blocks.reshape(batch, -1))
        np.testing.assert_allclose(model(x)[0], expected / expected.sum(1, keepdims=True), rtol=1e-5)
    assert model.compilations == 2


def nodes_of(model: weft.CompiledModel, op_name: str) -> list:
    return [node for node in model.graph.indexed.nodes if node.op_name == op_name]
