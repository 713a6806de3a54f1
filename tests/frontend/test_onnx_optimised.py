"""Files as ONNX Runtime's tools leave them: transformers from PyTorch that its optimiser has rewritten, run by weft and
by ONNX Runtime itself."""

import decoders
import numpy as np
import onnx
import pytest
from onnx_runs import onnxruntime_run
from oracles import oracle
from torch_files import HEADS, WIDTH, export_bert, export_convolutional, images, questions

import weft

pytestmark = pytest.mark.filterwarnings("ignore")  # of the exporter, about traces


@pytest.fixture(scope="module")
def bert_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert") / "bert.onnx"
    export_bert(path)
    return path


def fused_by_rules(path):
    """The model after the optimiser of transformers."""
    optimizer = oracle("onnxruntime.transformers.optimizer")
    return optimizer.optimize_model(str(path), model_type="bert", num_heads=HEADS, hidden_size=WIDTH)


def fused_by_session(model, path):
    """The model that a session of ONNX Runtime makes of another, and runs."""
    ort = oracle("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(path)


def operators(model):
    return {node.op_type for node in model.graph.node}


def check(model, inputs, expected, tolerance=1e-4):
    with weft.compile(model, shape={name: x.shape for name, x in inputs.items()}) as compiled:
        for ours, theirs in zip(compiled.run(inputs), expected, strict=True):
            np.testing.assert_allclose(np.asarray(ours), theirs, rtol=tolerance, atol=tolerance)


def test_bert_with_fused_layers(bert_file):
    model, inputs = fused_by_rules(bert_file).model, questions(seed=1)
    fused = {"EmbedLayerNormalization", "Attention", "SkipLayerNormalization", "BiasGelu"}
    assert fused <= operators(model)
    check(model, inputs, onnxruntime_run(onnx.load(bert_file), inputs))


def test_bert_with_fused_layers_in_half_precision(bert_file):
    """Its kernels are of other devices: what comes out is, but for rounding, what the file in float32 gives."""
    fused = fused_by_rules(bert_file)
    fused.convert_float_to_float16(keep_io_types=True)
    inputs = questions(seed=2)
    check(fused.model, inputs, onnxruntime_run(onnx.load(bert_file), inputs), tolerance=3e-2)


def test_bert_of_a_session(bert_file, tmp_path):
    model, inputs = onnx.load(bert_file), questions(seed=3)
    fused = fused_by_session(model, tmp_path / "fused.onnx")
    assert any(node.domain == "com.microsoft" for node in fused.graph.node)
    check(fused, inputs, onnxruntime_run(model, inputs))


@pytest.mark.parametrize(("make", "fused"), [("gpt2", "FusedMatMul"), ("llama", "SimplifiedLayerNormalization")])
def test_decoder_of_a_session(make, fused, tmp_path):
    decoder = getattr(decoders, make)()
    model = fused_by_session(decoders.exported(decoder), tmp_path / "fused.onnx")
    assert fused in operators(model)
    tokens, rng = np.array([[3, 1, 4, 1]]), np.random.default_rng(2)
    cache = [
        rng.standard_normal((1, *x.shape[1:2], 5, *x.shape[3:])).astype(np.float32)
        for x in decoders.empty_cache(decoder)
    ]
    inputs = dict(zip(["tokens", *decoders.names("past")], [tokens, *cache]))
    check(model, inputs, decoders.torch_step(decoder, tokens, cache))


# What the quantiser makes of it.


def quantised_while_running(quantization, source, target, **options):
    quantization.quantize_dynamic(str(source), str(target), **options)


def quantised_by_samples(quantization, source, target, form, draw=questions):
    samples = iter([draw(seed) for seed in range(10, 13)])

    class Samples(quantization.CalibrationDataReader):
        def get_next(self):
            return next(samples, None)

    quantization.quantize_static(str(source), str(target), Samples(), quant_format=quantization.QuantFormat[form])


@pytest.mark.parametrize("each_column", [False, True])
def test_bert_that_is_quantised_while_it_runs(bert_file, tmp_path, each_column):
    """A number at the edge of two levels may take either, and moves what follows by one."""
    quantization = oracle("onnxruntime.quantization")
    kind = quantization.QuantType.QInt8
    quantised_while_running(quantization, bert_file, tmp_path / "q.onnx", per_channel=each_column, weight_type=kind)
    model, inputs = onnx.load(tmp_path / "q.onnx"), questions(seed=4)
    assert {"DynamicQuantizeLinear", "MatMulInteger"} <= operators(model)
    check(model, inputs, onnxruntime_run(model, inputs), tolerance=2e-2)
    fused = fused_by_session(model, tmp_path / "fused.onnx")
    assert {"DynamicQuantizeMatMul", "MatMulIntegerToFloat"} & operators(fused)
    check(fused, inputs, onnxruntime_run(fused, inputs), tolerance=2e-2)


@pytest.mark.parametrize(("form", "operator"), [("QDQ", "QuantizeLinear"), ("QOperator", "QLinearMatMul")])
def test_bert_that_is_quantised_by_samples(bert_file, tmp_path, form, operator):
    quantised_by_samples(oracle("onnxruntime.quantization"), bert_file, tmp_path / "q.onnx", form)
    model, inputs = onnx.load(tmp_path / "q.onnx"), questions(seed=5)
    assert operator in operators(model)
    check(model, inputs, onnxruntime_run(model, inputs), tolerance=2e-2)


def test_fused_bert_that_is_quantised(bert_file, tmp_path):
    """Attention of a quantised projection."""
    quantization = oracle("onnxruntime.quantization")
    fused_by_rules(bert_file).save_model_to_file(str(tmp_path / "fused.onnx"))
    options = {"DefaultTensorType": onnx.TensorProto.FLOAT}
    quantised_while_running(quantization, tmp_path / "fused.onnx", tmp_path / "q.onnx", extra_options=options)
    model, inputs = onnx.load(tmp_path / "q.onnx"), questions(seed=6)
    assert "QAttention" in operators(model)
    check(model, inputs, onnxruntime_run(model, inputs), tolerance=2e-2)


# Convolutions.


@pytest.fixture(scope="module")
def convolutional_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("convolutional") / "network.onnx"
    export_convolutional(path)
    return path


def test_convolutions_of_a_session(convolutional_file, tmp_path):
    model, inputs = onnx.load(convolutional_file), images(seed=1)
    fused = fused_by_session(model, tmp_path / "fused.onnx")
    assert "FusedConv" in operators(fused)
    check(fused, inputs, onnxruntime_run(model, inputs))


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_convolutions_that_are_quantised(convolutional_file, tmp_path, form):
    """One level of the result is 1 / 256."""
    quantised_by_samples(oracle("onnxruntime.quantization"), convolutional_file, tmp_path / "q.onnx", form, images)
    model, inputs = onnx.load(tmp_path / "q.onnx"), images(seed=2)
    fused = fused_by_session(model, tmp_path / "fused.onnx")
    assert {"QLinearConv", "QGemm"} <= operators(fused)
    for each in (model, fused):
        check(each, inputs, onnxruntime_run(each, inputs), tolerance=1.1 / 256)
