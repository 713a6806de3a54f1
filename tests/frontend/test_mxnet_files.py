"""MXNet's two file formats in all their versions."""

import hashlib
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from mxnet_files import first, graph, named, node, oldest, params, second, sparse, text, third

from weft.base.errors import FormatError, NotFound, Unsupported
from weft.frontend.mxnet.params_file import SparseArray, read_params
from weft.frontend.mxnet.symbol_file import read_symbol

DTYPES = "float32 float64 float16 uint8 int32 int8 int64 int16 uint16 uint32 uint64".split()


@pytest.mark.parametrize("write", [oldest, first, second, third])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_version_and_dtype(rng, write, dtype):
    array = rng.integers(0, 100, (2, 3)).astype(dtype)
    made = read_params(params([write(array)], ["arg:w"]))
    assert list(made) == ["arg:w"]
    assert made["arg:w"].dtype == array.dtype
    np.testing.assert_array_equal(made["arg:w"], array)


def test_bool_and_bfloat16():
    bools, halves = np.array([True, False]), np.array([1.5, -2], ml_dtypes.bfloat16)
    made = read_params(params([second(bools), second(halves)], ["a", "b"]))
    np.testing.assert_array_equal(made["a"], bools)
    assert made["b"].dtype == halves.dtype
    np.testing.assert_array_equal(made["b"], halves)


def test_without_names_arrays_are_numbered():
    made = read_params(params([second(np.float32([i])) for i in range(3)]))
    assert {name: array.tolist() for name, array in made.items()} == {"0": [0], "1": [1], "2": [2]}


def test_scalars_and_empty_arrays_of_the_third_version():
    made = read_params(params([third(np.float32(3)), third(np.zeros((0, 3), "int8"))], ["a", "b"]))
    assert made["a"].shape == ()
    assert made["a"] == 3
    assert made["b"].shape == (0, 3)
    assert made["b"].dtype == np.int8


def test_row_sparse():
    data = np.float32([[1, 2], [3, 4]])
    file = params([sparse(1, (4, 2), data, np.int64([0, 2]))], ["w"])
    made = read_params(file)["w"]
    assert isinstance(made, SparseArray)
    assert made.kind == "row_sparse"
    np.testing.assert_array_equal(made.dense(), [[1, 2], [0, 0], [3, 4], [0, 0]])


def test_csr_with_a_stale_storage_shape():
    places = np.int64([0, 1, 1, 3]), np.int64([1, 0, 2])
    file = params([sparse(2, (3, 3), np.float32([5, 6, 7]), *places, stored_shape=(0,))], ["w"])
    expected = [[0, 5, 0], [0, 0, 0], [6, 0, 7]]
    np.testing.assert_array_equal(read_params(file)["w"].dense(), expected)


SAMPLES = {
    "bf16.params": {"b": ((2, 2), "bfloat16")},
    "csr_stale.params": {"arg:c": ((3, 3), "float32")},
    "nonames.params": {"0": ((2, 2), "float32"), "1": ((3,), "float32")},
    "npshape_v3.params": {"scalar": ((), "float32"), "zero": ((0, 3), "float32"), "x": ((2,), "float32")},
}


def _samples():
    if "WEFT_FIXTURES" not in os.environ:
        pytest.skip("WEFT_FIXTURES is not set")
    return Path(os.environ["WEFT_FIXTURES"]) / "mxnet" / "params_samples"


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_have_the_shapes_that_mxnet_reads(name):
    made = read_params(_samples() / name)
    assert {key: (a.shape, _dense(a).dtype.name) for key, a in made.items()} == SAMPLES[name]


def test_samples_are_read_bit_for_bit():
    """Digests of what mx.nd.load(...).asnumpy() of MXNet 1.9.1 gives."""
    made = read_params(_samples() / "dtypes_sparse.params")
    digests = {name: hashlib.sha256(_dense(a).tobytes()).hexdigest()[:16] for name, a in made.items()}
    assert digests == DIGESTS


DIGESTS = {
    "arg:float32": "94e79eeeb3fb6995",
    "arg:float64": "ea6293e3fc7188ae",
    "arg:float16": "6274843d19ddc57b",
    "arg:uint8": "d8e18d97e43c4fa7",
    "arg:int32": "be9ded538bc07e8b",
    "arg:int8": "72d976c3b61a2460",
    "arg:int64": "c9eb1444be2c9b96",
    "arg:bool": "dfea2964b5deedea",
    "aux:rsp": "bac3c94b317a9dc4",
    "arg:csr": "dc833453d4c3ebd1",
}


def _dense(array):
    return array.dense() if isinstance(array, SparseArray) else array


# Files that lie.


def _is_refused(data, *words):
    with pytest.raises(FormatError) as caught:
        read_params(data)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_every_truncation_is_an_error():
    places = np.int64([0, 1, 1, 3]), np.int64([1, 0, 2])
    arrays = [second(np.float32([1, 2])), sparse(2, (3, 3), np.float32([5, 6, 7]), *places)]
    whole = params([*arrays, oldest(np.int8([3]))], ["a", "b", "c"])
    read_params(whole)
    for length in range(len(whole)):
        with pytest.raises(FormatError):
            read_params(whole[:length])


@pytest.mark.parametrize("write", [oldest, first, second, third])
def test_claims_are_compared_with_the_bytes_there_are(write):
    whole = bytearray(params([write(np.zeros((2, 3), "float32"))], ["w"]))
    start = {oldest: 28, first: 32, second: 36, third: 36}[write]
    size = 4 if write is oldest else 8
    whole[start : start + size] = (2**31 - 1 if size == 4 else 2**62).to_bytes(size, "little")
    _is_refused(bytes(whole))


def test_counts_are_compared_with_the_bytes_there_are():
    whole = bytearray(named(w=np.float32([1])))
    whole[16:24] = (2**63).to_bytes(8, "little")
    _is_refused(bytes(whole), "do not fit")


def test_other_lies():
    _is_refused(b"", "truncated")
    _is_refused(b"\0" * 64, "not an MXNet parameter file")
    _is_refused(named(w=np.float32([1])) + b"x", "1 bytes follow")
    _is_refused(params([second(np.float32([1]))] * 2, ["a", "a"]), "same name")
    _is_refused(params([second(np.float32([1]))] * 2, ["a"]), "1 names for 2 arrays")
    lost = params([sparse(2, (3, 3), np.float32([5]), np.int64([0, 2, 1, 1]), np.int64([0]))], ["w"])
    _is_refused(lost, "do not add up")


def test_a_sparse_array_does_not_become_huge():
    file = params([sparse(1, (2**40, 2), np.float32([[1, 2]]), np.int64([5]))], ["w"])
    made = read_params(file)["w"]
    with pytest.raises(Unsupported):
        made.dense()


def test_a_sparse_array_with_places_outside():
    file = params([sparse(1, (4, 2), np.float32([[1, 2]]), np.int64([4]))], ["w"])
    with pytest.raises(FormatError):
        read_params(file)["w"].dense()


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(NotFound):
        read_params(tmp_path / "none.params")


# Symbol files.

RELU = [node("null", "x"), node("Activation", "a", [(0, 0, 0)], act_type="relu")]


@pytest.mark.parametrize("key", ["attrs", "attr", "param"])
@pytest.mark.parametrize("width", [2, 3])
def test_attributes_under_every_key(key, width):
    nodes = [dict(item) for item in RELU]
    for item in nodes:
        item[key] = item.pop("attrs")
        item["inputs"] = [entry[:width] for entry in item["inputs"]]
    made = read_symbol(graph(nodes, [[1, 0, 0][:width]]))
    assert made.nodes[1].attrs == {"act_type": "relu"}
    assert made.nodes[1].inputs == [(0, 0)]
    assert made.heads == [(1, 0)]


def test_user_attributes_beside_operator_parameters():
    nodes = [dict(item) for item in RELU]
    nodes[1]["param"] = nodes[1].pop("attrs")
    nodes[1]["attr"] = {"colour": "red", "ctx_group": "dev1"}
    made = read_symbol(graph(nodes, [[1, 0]], None))
    assert made.nodes[1].attrs["act_type"] == "relu"
    assert all(key.startswith("__") for key in made.nodes[1].attrs if key != "act_type")


def _norm(version, inputs):
    names = ["x", "b_gamma", "b_beta", "b_moving_mean", "b_moving_var"][:inputs]
    nodes = [node("null", name) for name in names]
    nodes.append(node("BatchNorm", "b", [(i, 0, 0) for i in range(inputs)]))
    return read_symbol(graph(nodes, [[inputs, 0, 0]], version))


@pytest.mark.parametrize("version", [None, 800, 899])
def test_old_files_gain_auxiliary_variables(version):
    made = _norm(version, 3)
    [norm] = [item for item in made.nodes if item.op == "BatchNorm"]
    read = [made.nodes[number].name for number, _ in norm.inputs]
    assert read == ["x", "b_gamma", "b_beta", "b_moving_mean", "b_moving_var"]
    assert made.nodes[made.heads[0][0]] is norm


def test_new_files_gain_nothing():
    assert len(_norm(10300, 3).nodes) == 4


def test_argmax_of_old_files_has_no_axis():
    nodes = [node("null", "x"), node("argmax", "a", [(0, 0, 0)], axis="-1")]
    for version, attrs in ((904, {}), (905, {"axis": "-1"})):
        made = read_symbol(graph([dict(n, attrs=dict(n["attrs"])) for n in nodes], [[1, 0]], version))
        assert made.nodes[1].attrs == attrs


def _refused_graph(source, *words):
    with pytest.raises(FormatError) as caught:
        read_symbol(source)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_cycles_and_wrong_numbers():
    loop = [node("null", "x"), node("relu", "a", [(2, 0)]), node("relu", "b", [(1, 0)])]
    _refused_graph(text(loop, [[2, 0]]), "before it is there")
    _refused_graph(text([node("null", "x"), node("relu", "a", [(1, 0)])], [[1, 0]]), "before")
    _refused_graph(text(RELU, [[2, 0]]), "before it is there")
    _refused_graph(text(RELU, []), "no outputs")
    _refused_graph(text(RELU, [[-1, 0]]))
    _refused_graph(text(RELU, [[1.5, 0]]))
    _refused_graph(text(RELU, [[True, 0]]))
    _refused_graph({**graph(RELU, [[1, 0]]), "arg_nodes": [1]}, "no variable")
    _refused_graph({**graph(RELU, [[1, 0]]), "arg_nodes": [7]})
    _refused_graph({**graph(RELU, [[1, 0]]), "attrs": {"mxnet_version": ["int", "1.9"]}})


@pytest.mark.parametrize(
    "source",
    [
        "",
        "[]",
        "{",
        '{"nodes": 3, "heads": []}',
        '{"nodes": [1], "heads": [[0, 0]]}',
        b"\xff\xfe",
        '{"nodes": [{"op": "null", "name": "x", "attrs": {"a": 1}}], "heads": [[0, 0]]}',
        '{"nodes": [{"op": 5, "name": "x"}], "heads": [[0, 0]]}',
        "[" * 100_000,
        '{"nodes": ' + "[" * 100_000,
        '{"nodes": [' + "9" * 10_000 + "]}",
    ],
)
def test_what_is_no_symbol_file(source):
    _refused_graph(source)
