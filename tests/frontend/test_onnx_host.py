"""What runs on the host between compiled parts: extents that data tells, text, sequences and optional values.
ONNX Runtime says what is right."""

import numpy as np
import onnx
import pytest
from bounds import ends
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_runs import onnxruntime_run

import weft
from weft.base.errors import Error

TYPES = {np.dtype(object): TensorProto.STRING}


def declared(name, array, is_open=True):
    """An input, of any extents if it is open."""
    code = TYPES.get(array.dtype) or helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, code, [None] * array.ndim if is_open else array.shape)


def model_of(nodes, inputs, outputs, opset=21, is_open=True):
    graph = helper.make_graph(
        nodes,
        "test",
        [declared(name, array, is_open) for name, array in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def one(op_type, *arrays, outputs=1, opset=21, is_open=True, **attrs):
    """A model of one node and its inputs, of which None is left out."""
    names = ["" if array is None else f"x{i}" for i, array in enumerate(arrays)]
    inputs = {name: array for name, array in zip(names, arrays) if array is not None}
    results = [f"y{i}" for i in range(outputs)]
    return model_of([helper.make_node(op_type, names, results, **attrs)], inputs, results, opset, is_open), inputs


def run(model, inputs):
    with weft.compile(model) as compiled:
        return compiled.run(inputs)


def same(found, wanted):
    if isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            same(one, other)
    elif wanted is None:
        assert found is None
    else:
        wanted = np.asarray(wanted)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(found, wanted)


def agree(model, inputs):
    same(run(model, inputs), onnxruntime_run(model, inputs))


def texts(*words):
    return np.array(words, object)


# Extents that the data tells.


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.uint8])
def test_elements_that_are_not_zero(rng, dtype):
    for shape in [(7,), (3, 4), (2, 3, 2), (0, 3), ()]:
        agree(*one("NonZero", rng.integers(0, 2, shape).astype(dtype)))


def test_a_model_goes_on_behind_a_step(rng):
    """The places of positive elements, and what a table has there."""
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        helper.make_node("NonZero", ["positive"], ["places"]),
        helper.make_node("Transpose", ["places"], ["rows"]),
        helper.make_node("GatherND", ["positive", "rows"], ["picked"]),
        helper.make_node("Sqrt", ["picked"], ["y"]),
    ]
    x = rng.standard_normal((5, 6)).astype(np.float32)
    model = model_of(nodes, {"x": x}, ["y", "rows"])
    with weft.compile(model) as compiled:
        for given in (x, x[:2], -x, np.zeros((1, 1), np.float32)):
            found, rows = compiled.run({"x": given})
            wanted, places = onnxruntime_run(model, {"x": given})
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
            same(rows, places)


def elements(rng, kind, shape):
    numbers = rng.integers(0, 3, shape)
    return np.array(["b", "a", "c"], object)[numbers] if kind == "text" else numbers.astype(kind)


@pytest.mark.parametrize("kind", ["float32", "int64", "text"])
def test_different_elements(rng, kind):
    for shape, axis in [((6,), None), ((4, 3), None), ((5, 2), 0), ((2, 6), -1), ((2, 5, 2), 1)]:
        for is_sorted in (0, 1):
            attrs = {"sorted": is_sorted} | ({} if axis is None else {"axis": axis})
            agree(*one("Unique", elements(rng, kind, shape), outputs=4, **attrs))


def test_different_elements_of_nothing():
    found = run(*one("Unique", np.zeros((2, 0), np.float32), outputs=4, axis=0))
    same(found, [np.zeros((1, 0), np.float32), np.array([0]), np.array([0, 0]), np.array([2])])
    found = run(*one("Unique", np.zeros((2, 0), np.float32), outputs=4))
    same(found, [np.zeros(0, np.float32), *[np.zeros(0, np.int64)] * 3])


@pytest.mark.parametrize("kind", ["float32", "bool", "text"])
def test_chosen_elements(rng, kind):
    x = elements(rng, kind, (3, 4))
    for axis, count in [(None, 12), (None, 5), (0, 3), (-1, 2), (1, 6)]:
        attrs = {} if axis is None else {"axis": axis}
        agree(*one("Compress", x, rng.random(count) < 0.6, **attrs))


def boxes_and_scores(rng, images, classes, count):
    boxes, scores = rng.uniform(0, 1, (images, count, 4)), rng.random((images, classes, count))
    if count % 2:  # many boxes that touch, and equal scores
        boxes, scores = np.round(boxes * 4), np.round(scores * 5) / 5
    return boxes.astype(np.float32), scores.astype(np.float32)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("count", [1, 33, 300])
def test_boxes_that_are_left(rng, count, centred):
    for most, overlap, least in [(5, 0.5, None), (1000, 0.3, 0.2), (1000, 0.0, 0.7), (40, 1.0, None), (0, 0.5, 0.1)]:
        given = [np.array([most]), np.array([overlap], np.float32)]
        given += [] if least is None else [np.array([least], np.float32)]
        model, inputs = one("NonMaxSuppression", *boxes_and_scores(rng, 2, 3, count), *given, center_point_box=centred)
        agree(model, inputs)


def test_boxes_without_a_limit_are_none(rng):
    agree(*one("NonMaxSuppression", *boxes_and_scores(rng, 1, 2, 6)))
    given = [np.array([4]), None, np.array([0.3], np.float32)]
    agree(*one("NonMaxSuppression", *boxes_and_scores(rng, 1, 2, 6), *given, opset=10))


def test_many_boxes(rng):
    boxes, scores = boxes_and_scores(rng, 1, 10, 20_000)
    model, inputs = one("NonMaxSuppression", boxes, scores, np.array(100), np.array(0.5, np.float32))
    with weft.compile(model) as compiled, ends():
        (found,) = compiled.run(inputs)
    assert found.shape == (1000, 3)


# Text.


def test_texts_put_together():
    agree(*one("StringConcat", texts("a", "b", ""), texts("-", "é", "")))
    agree(*one("StringConcat", np.array([["a"], ["b"]], object), texts("x", "y", "z")))
    same(run(*one("StringConcat", np.array("a", object), np.array("b", object))), [np.array("ab", object)])


@pytest.mark.parametrize("attrs", [{}, {"delimiter": ","}, {"delimiter": ""}, {"delimiter": ", "}])
def test_texts_split(attrs):
    x = np.array([[" a,b  c, ", "d"], ["e,,f", "  g h   i "]], object)
    for most in (None, 0, 1, 2, 9):
        agree(*one("StringSplit", x, outputs=2, **attrs, **({} if most is None else {"maxsplit": most})))
    agree(*one("StringSplit", np.zeros((2, 0), object), outputs=2, **attrs))


def test_any_space_parts_words():
    """As Python has it, and onnx's own evaluator."""
    model, inputs = one("StringSplit", texts(" a\t b\nc ", "d"), outputs=2)
    same(run(model, inputs), ReferenceEvaluator(model).run(None, inputs))


@pytest.mark.parametrize("action", ["LOWER", "UPPER", "NONE"])
@pytest.mark.parametrize("sensitive", [0, 1])
def test_texts_in_one_case(action, sensitive):
    words = ["Monday", "monday", "MONDAY", "Tuesday", "tuesday am", "x"]
    attrs = {"case_change_action": action, "is_case_sensitive": sensitive, "locale": "C"}
    for x in (texts(*words), texts(*words)[None], texts("monday", "monday")):
        agree(*one("StringNormalizer", x, stopwords=["monday", "X"], is_open=False, **attrs))
    agree(*one("StringNormalizer", texts("A", "b"), is_open=False, **attrs))
    with pytest.raises(Error, match="one row"):
        run(*one("StringNormalizer", texts("A", "b")[:, None], **attrs))


TEXTS = [
    *("", "a", "ab", "abc", "AB", "é", "É", "a.b", "aa", "\n", "a\nb", "_1", " ", "]", "aaaa", "ab ab", "7", "٣", "{")
]
PATTERNS = [
    *("a.c", "[[:alpha:]]+", r"\pL+", "(?i)AB", r"a\z", "(?U)a+", r"\x{e9}", r"\Qa.b\E", r"\bab\b", "^ab$", "."),
    *("(?s).", "(?s).*", "(?m)^a$\nb", "(?sm)a$.^b", r"\W", "[^a]", "(?i)[^a]", "(?i)[^a-z]", "[]a]+", "[^]a]", "[a-]"),
    *("a{2}", "a{,2}", "a{2,}", "a{1,3}", "a*?", "(a|b)*c?", "(?:ab ?)+", "(?P<n>a)b", "(?<n>a)b", r"\d", r"\D", r"\s"),
    *(r"\S+", r"\p{Lu}", r"\P{Lu}", r"\p{^Lu}", "[[:^alpha:]]", r"[\d_]+", r"\x41\x42", r"\101B", "a|", "|a", "()"),
    *(r"a\Bb", r"\Aab\z", r"\{", "{", "a{x", "(?i:a)B", "(?i)a(?-i)b", "(?i)a|b", r"\n", r"[\w.-]+", "(a{2}){2}"),
    *(r"\pN", r"[\pN]", r"[^\pN]", "(?i)É", r"\Q\E", r"\Qa", "^*", r"a\|b", r"\_1", "a{0}", "(a*)*", "(a|aa)+b"),
]
NO_PATTERNS = [
    *(r"(a)\1", "(?=a)a", "a{1001}", "a**", "(", ")", "*a", "[[:foo:]]", "[z-a]", "a{2}{3}", r"\Z", r"\8", "[a"),
    *("(?z)a", r"\x{110000}", "((a{100}){100}){100}", "(" * 5000 + ")" * 5000, "a{99999999999999999999}", "a\\"),
]


def test_patterns_as_re2_reads_them():
    """ONNX Runtime has RE2 itself."""
    for pattern in PATTERNS:
        model, inputs = one("RegexFullMatch", np.array(TEXTS, object), pattern=pattern)
        (wanted,) = onnxruntime_run(model, inputs)
        assert dict(zip(TEXTS, run(model, inputs)[0])) == dict(zip(TEXTS, wanted)), pattern


@pytest.mark.parametrize("pattern", NO_PATTERNS)
def test_patterns_that_are_refused(pattern):
    with pytest.raises(Error):
        run(*one("RegexFullMatch", texts("a"), pattern=pattern))


def test_no_pattern_takes_long():
    with ends():
        assert not run(*one("RegexFullMatch", texts("a" * 50_000), pattern="(a+)+b"))[0].any()
        assert run(*one("RegexFullMatch", texts("a" * 60), pattern="(a?){60}a{60}"))[0].all()


def test_numbers_as_text():
    floats = np.array([0.1, 1e-7, 123456789, 1 / 3, np.nan, -np.inf, 1e22, -0.0, 12345678.9], np.float32)
    for x in (floats, floats.astype(np.float64), np.array([True, False]), np.array([[-3], [2**62]])):
        agree(*one("Cast", x, to=TensorProto.STRING))


def test_text_as_numbers():
    for to in ("FLOAT", "DOUBLE", "FLOAT16", "INT64", "INT32", "UINT8", "INT8", "BOOL"):
        agree(*one("Cast", np.array([["1", "-3.5"], ["100", "0"]], object), to=getattr(TensorProto, to)))
    agree(*one("Cast", texts("inf", "NaN", "-INF", "1e-5", "1E8", " 7"), to=TensorProto.FLOAT))
    agree(*one("Cast", texts("9223372036854775807", "-9007199254740993"), to=TensorProto.INT64))
    agree(*one("Cast", texts("300", "-1"), to=TensorProto.UINT8))
    for text in ("x", "", "1_0", "0x10", "1 2"):
        with pytest.raises(Error, match="no number"):
            run(*one("Cast", texts(text), to=TensorProto.FLOAT))
    with pytest.raises(Error):
        run(*one("Cast", texts("nan"), to=TensorProto.INT32))


def vocabulary(rng, sizes):
    """A pool of n-grams of three words, and where those of each size begin."""
    pool, starts, count = [], [], 0
    for size in range(1, sizes + 1):
        grams = {tuple(rng.integers(0, 3, size).tolist()) for _ in range(3)}
        starts.append(len(pool))
        pool += [word for gram in sorted(grams) for word in gram]
        count += len(grams)
    return pool, starts, count


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("is_text", [False, True])
def test_counts_of_words(rng, is_text, mode):
    for skips, shape in [(0, (9,)), (1, (2, 8)), (3, (1, 6)), (2, (0,))]:
        pool, starts, count = vocabulary(rng, 3)
        attrs = {
            "mode": mode,
            "min_gram_length": int(rng.integers(1, 3)),
            "max_gram_length": int(rng.integers(2, 4)),
            "max_skip_count": skips,
            "ngram_counts": starts,
            "ngram_indexes": [int(i) for i in rng.permutation(count + 2)[:count]],
            "weights": [float(w) for w in rng.uniform(1, 2, count)],
        }
        x = rng.integers(0, 3, shape)
        if is_text:
            attrs["pool_strings"], x = [f"w{i}" for i in pool], np.array(["w0", "w1", "w2"], object)[x]
        else:
            attrs["pool_int64s"] = pool
        agree(*one("TfIdfVectorizer", x, **attrs))


@pytest.mark.parametrize("attrs", [{"ngram_indexes": [1 << 45, 0]}, {"ngram_indexes": [0]}, {"ngram_counts": [0, 1]}])
def test_counts_that_are_refused(attrs):
    usual = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 1 << 50}
    usual |= {"ngram_counts": [0], "ngram_indexes": [0, 1], "pool_int64s": [3, 4]}
    agree(*one("TfIdfVectorizer", np.array([3, 3, 5]), **{**usual, "max_skip_count": 1}))
    with pytest.raises(Error):
        run(*one("TfIdfVectorizer", np.array([3, 3, 5]), **{**usual, **attrs}))


def test_text_is_given_in_many_ways():
    model, inputs = one("StringConcat", texts("a", "é"), texts("x"))
    wanted = onnxruntime_run(model, inputs)
    with weft.compile(model) as compiled:
        for given in (inputs["x0"], np.array(["a", "é"]), ["a", "é"], [b"a", "é".encode()]):
            same(compiled.run({"x0": given, "x1": ["x"]}), [wanted[0]])
        for wrong in (np.array([1, 2]), ["a", 3], None, [b"\xff"]):
            with pytest.raises(Error, match="x0"):
                compiled.run({"x0": wrong, "x1": ["x"]})


def test_constants_of_text():
    stored = helper.make_tensor("b", TensorProto.STRING, [1, 2], [b"r", b"s"])
    nodes = [
        helper.make_node("Constant", [], ["a"], value_strings=["p", "q"]),
        helper.make_node("Constant", [], ["b"], value=stored),
        helper.make_node("Constant", [], ["c"], value_string="t"),
        helper.make_node("StringConcat", ["x", "a"], ["xa"]),
        helper.make_node("StringConcat", ["b", "c"], ["bc"]),
    ]
    x = texts("x", "y")
    agree(model_of(nodes, {"x": x}, ["xa", "bc", "a"]), {"x": x})


# Sequences, and values that may be absent.


def sequence_model(rng, nodes, outputs, count=3):
    """`s` is a sequence of the inputs a, b, c..."""
    inputs = {name: rng.standard_normal((2, 3)).astype(np.float32) for name in "abc"[:count]}
    first = helper.make_node("SequenceConstruct", list(inputs), ["s"])
    given = {**inputs, "one": np.array(1), "back": np.array(-2)}
    made = [first, *(helper.make_node(op, ins.split(), outs.split(), **attrs) for op, ins, outs, attrs in nodes)]
    return model_of(made, given, outputs), given


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([], ["s"]),
        ([("SequenceAt", "s one", "y", {}), ("SequenceAt", "s back", "z", {})], ["y", "z"]),
        ([("SequenceInsert", "s a one", "y", {}), ("SequenceInsert", "y b", "z", {})], ["y", "z"]),
        ([("SequenceErase", "s back", "y", {}), ("SequenceErase", "y", "z", {})], ["y", "z"]),
        ([("SequenceLength", "s", "y", {})], ["y"]),
        ([("ConcatFromSequence", "s", "y", {"axis": -1}), ("Relu", "y", "z", {})], ["z"]),
        ([("ConcatFromSequence", "s", "y", {"axis": -1, "new_axis": 1})], ["y"]),
        (
            [("SequenceEmpty", "", "e", {}), ("SequenceInsert", "e b", "y", {}), ("SequenceLength", "e", "n", {})],
            ["y", "n"],
        ),
        ([("Identity", "s", "y", {}), ("SequenceAt", "y one", "z", {})], ["y", "z"]),
    ],
)
def test_sequences(rng, nodes, outputs):
    agree(*sequence_model(rng, nodes, outputs))


@pytest.mark.parametrize("op_type", ["SequenceAt", "SequenceErase"])
def test_places_outside_of_a_sequence(rng, op_type):
    model, inputs = sequence_model(rng, [(op_type, "s one", "y", {})], ["y"], count=1)
    with pytest.raises(Error, match="position"):
        run(model, inputs)


@pytest.mark.parametrize("axis", [0, -1])
def test_tensors_split(rng, axis):
    x = rng.standard_normal((4, 3, 4)).astype(np.float32)
    agree(*one("SplitToSequence", x, axis=axis, keepdims=0))
    for lengths in (None, np.array(3), np.array([1, 3]), np.array(9)):
        agree(*one("SplitToSequence", x, lengths, axis=axis))
    (found,) = run(*one("SplitToSequence", x, np.array(3), axis=axis, keepdims=0))  # which is ignored then
    same(found, np.split(x, [3], axis))
    for lengths in (np.array(0), np.array([1, 2]), np.array([5, -1])):
        with pytest.raises(Error):
            run(*one("SplitToSequence", x, lengths, axis=axis))


def test_texts_in_sequences():
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0),
        helper.make_node("SequenceAt", ["s", "i"], ["y"]),
        helper.make_node("ConcatFromSequence", ["s"], ["z"], axis=0, new_axis=1),
    ]
    inputs = {"x": texts("a", "bc", ""), "i": np.array(1)}
    found = run(model_of(nodes, inputs, ["y", "z"]), inputs)
    same(found, [np.array("bc", object), texts("a", "bc", "")])


def test_values_that_may_be_absent(rng):
    x = rng.standard_normal((2, 3)).astype(np.float32)
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 3])
    nodes = [
        helper.make_node("Optional", ["x"], ["some"]),
        helper.make_node("OptionalHasElement", ["some"], ["yes"]),
        helper.make_node("OptionalGetElement", ["some"], ["y"]),
        helper.make_node("Optional", [], ["none"], type=kind),
        helper.make_node("OptionalHasElement", ["none"], ["no"]),
    ]
    agree(model_of(nodes, {"x": x}, ["yes", "y", "no"], 18), {"x": x})
    absent = model_of([*nodes[3:], helper.make_node("OptionalGetElement", ["none"], ["y"])], {"x": x}, ["y"], 18)
    with pytest.raises(Error, match="absent"):
        run(absent, {"x": x})
