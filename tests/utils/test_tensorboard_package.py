"""What TensorBoard's own package reads from the files of a SummaryWriter, beside those of PyTorch's writer."""

import io

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.utils.tensorboard import SummaryWriter


def written(folder):
    """Values with their steps, by folder and tag, as the package reads them."""
    oracle("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    found = {}
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        for content in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(content)
            for value in event.summary.value:
                place = str(path.parent.relative_to(folder)), value.tag
                found.setdefault(place, []).append((event.step, value))
    return found


def plugin_message(value):
    """What a plugin is told about a value, as a message that can be compared."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData
    from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData

    kinds = {"hparams": HParamsPluginData, "mesh": MeshPluginData, "pr_curves": PrCurvePluginData}
    told = value.metadata.plugin_data
    return kinds[told.plugin_name].FromString(told.content) if told.plugin_name in kinds else told.content


def same(ours, theirs):
    """Checks that two values say the same."""
    from PIL import Image
    from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
    from tensorboard.util.tensor_util import make_ndarray

    assert ours.tag == theirs.tag
    assert ours.metadata.plugin_data.plugin_name == theirs.metadata.plugin_data.plugin_name
    assert plugin_message(ours) == plugin_message(theirs)
    kind = theirs.WhichOneof("value")
    assert ours.WhichOneof("value") == kind
    if kind == "tensor":
        mine, other = make_ndarray(ours.tensor), make_ndarray(theirs.tensor)
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        if ours.tag == "custom_scalars__config__":
            assert Layout.FromString(mine.item()) == Layout.FromString(other.item())
        else:
            np.testing.assert_array_equal(mine, other)
    elif kind == "image":
        mine, other = (
            np.asarray(Image.open(io.BytesIO(value.image.encoded_image_string)).convert("RGB"))
            for value in (ours, theirs)
        )
        np.testing.assert_array_equal(mine, other)
        assert (ours.image.height, ours.image.width) == (theirs.image.height, theirs.image.width)
    elif kind is not None:
        assert getattr(ours, kind) == getattr(theirs, kind)


def write_all(writer, tensor, seed):
    """Some of everything; `tensor` makes tensors of arrays."""
    rng = np.random.default_rng(seed)
    floats = rng.random((9, 3, 4, 5)).astype(np.float32)
    writer.add_scalar("/loss/a", tensor(floats[0, 0, 0, 0]), 7)
    writer.add_scalar("below zero", -0.25, -3)
    writer.add_scalar("new", 0.1, 3, new_style=True)
    writer.add_scalar("double", 0.1, 3, new_style=True, double_precision=True)
    writer.add_scalars("a/b", {"x": 1, "y": tensor(floats[0, 0, 0, 1])}, 3)
    writer.add_histogram("h", tensor(rng.standard_normal((20, 5))), 1)
    writer.add_histogram("ten", rng.standard_normal(50), 1, bins=10)
    writer.add_histogram("few", rng.standard_normal(50), 1, bins=10, max_bins=5)
    writer.add_histogram_raw("known", 0, 4, 3, 5, 11, [1, 2, 3], [1, 1, 1], 2)
    writer.add_image("bytes", tensor(rng.integers(0, 256, (3, 4, 5), dtype=np.uint8)), 2)
    writer.add_image("last", tensor(floats[0].transpose(1, 2, 0).copy()), 2, dataformats="HWC")
    writer.add_image("grey", tensor(floats[0, 0]), 2, dataformats="HW")
    writer.add_images("page", tensor(floats), 2)
    writer.add_image_with_boxes("frames", tensor(floats.reshape(3, 12, 15)), tensor(np.array([[2, 3, 9, 8.0]])), 2)
    writer.add_audio("sound", tensor(rng.uniform(-1, 1, (1, 50)).astype(np.float32)), 1, 8000)
    writer.add_text("note", "grüße", 4)
    for kind in "float32 float64 int8 int16 int32 int64 bool complex64 complex128".split():
        writer.add_tensor(kind, tensor((floats[0] * 9).astype(kind)), 1)
    labels, guesses = rng.integers(0, 2, 100), rng.random(100)
    writer.add_pr_curve("curve", labels, guesses, 1)
    writer.add_pr_curve("weighted", tensor(labels), tensor(guesses), 1, num_thresholds=11, weights=rng.random(100))
    writer.add_pr_curve_raw("raw", *rng.random((6, 5)), 1, num_thresholds=5)
    charts = {"a": ["Multiline", ["x", "y"]], "b": ["Margin", ["x", "y", "z"]]}
    writer.add_custom_scalars({"A": charts, "B": {"c": ["Multiline", ["q"]]}})
    writer.add_custom_scalars_multilinechart(["u", "v"])
    writer.add_custom_scalars_marginchart(["u", "v", "w"], "category", "title")
    vertices, faces, colours = floats[:1, 0, :, :3], rng.integers(0, 4, (1, 4, 3)), rng.integers(0, 256, (1, 4, 3))
    writer.add_mesh("mesh", tensor(vertices), tensor(colours), tensor(faces), {"camera": {"fov": 75}}, 2)
    writer.add_mesh("cloud", tensor(vertices))
    settings = {"lr": 0.1, "n": 3, "name": "x", "none": None, "one": tensor(floats[0, 0, 0, :1])}
    domains = {"lr": [0.1, 0.2], "name": ["x", "y"]}
    writer.add_hparams(settings, {"hparam/accuracy": 1.5}, domains, run_name="run", global_step=5)
    pictures = tensor(floats[:5, :, :, :4].copy())
    writer.add_embedding(tensor(floats[:5, 0, 0].copy()), ["a", "b", "c", "d", "ß"], pictures, 2, "e/m")
    writer.add_embedding(tensor(floats[0, 0].copy()), [[n, 1] for n in "abcd"], metadata_header=["l", "n"])


@pytest.mark.parametrize("seed", range(3))
def test_the_package_reads_the_same_as_of_pytorch(tmp_path, seed):
    oracle("tensorboard")
    torch = oracle("torch")
    from torch.utils.tensorboard import SummaryWriter as Theirs

    with SummaryWriter(tmp_path / "ours") as writer:
        write_all(writer, weft.tensor, seed)
    with Theirs(tmp_path / "theirs") as writer:
        write_all(writer, torch.tensor, seed)
    mine, other = written(tmp_path / "ours"), written(tmp_path / "theirs")
    assert sorted(mine) == sorted(other)
    for place, values in other.items():
        assert len(mine[place]) == len(values)
        for (my_step, my_value), (step, value) in zip(mine[place], values):
            assert my_step == step
            same(my_value, value)


@pytest.mark.parametrize("seed", range(3))
def test_the_projector_finds_the_same(tmp_path, seed):
    oracle("tensorboard")
    torch = oracle("torch")
    from google.protobuf import text_format
    from PIL import Image
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
    from torch.utils.tensorboard import SummaryWriter as Theirs

    write_all(SummaryWriter(tmp_path / "ours"), weft.tensor, seed)
    write_all(Theirs(tmp_path / "theirs"), torch.tensor, seed)
    mine, other = (
        text_format.Parse((tmp_path / name / "projector_config.pbtxt").read_text(), ProjectorConfig())
        for name in ("ours", "theirs")
    )
    assert mine == other
    assert len(mine.embeddings) == 2
    for path in (tmp_path / "theirs").rglob("*.tsv"):
        assert (tmp_path / "ours" / path.relative_to(tmp_path / "theirs")).read_bytes() == path.read_bytes()
    sprites = [Image.open(tmp_path / name / mine.embeddings[0].sprite.image_path) for name in ("ours", "theirs")]
    np.testing.assert_array_equal(*map(np.asarray, sprites))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "uint8"])
def test_tensors_that_pytorch_writes_otherwise(tmp_path, kind):
    oracle("tensorboard")
    from tensorboard.util.tensor_util import make_ndarray

    values = weft.rand(3, 4).mul(9).to(getattr(weft, kind))
    with SummaryWriter(tmp_path) as writer:
        writer.add_tensor("x", values)
    ((_, value),) = written(tmp_path)[".", "x"]
    np.testing.assert_array_equal(make_ndarray(value.tensor), values.to(weft.float32).numpy())


def test_settings_that_are_true_or_false(tmp_path):
    oracle("tensorboard")
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams({"deep": True}, {}, {"deep": [True, False]}, run_name="run")
    found = written(tmp_path)
    ((_, start),) = found["run", "_hparams_/session_start_info"]
    assert plugin_message(start).session_start_info.hparams["deep"].bool_value is True
    ((_, experiment),) = found["run", "_hparams_/experiment"]
    (info,) = plugin_message(experiment).experiment.hparam_infos
    assert [value.bool_value for value in info.domain_discrete.values] == [True, False]


def test_the_accumulator_has_all_kinds(tmp_path):
    oracle("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", step / 2, step)
        writer.add_histogram("h", np.arange(5.0))
        writer.add_image("i", np.zeros((3, 2, 2)))
        writer.add_video("v", np.zeros((1, 2, 3, 2, 2)))
        writer.add_audio("a", np.zeros(5))
        writer.add_tensor("t", np.zeros(5))
        writer.add_graph(weft.nn.Linear(2, 3), weft.ones(1, 2))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    tags = events.Tags()
    found = {kind: tags[kind] for kind in ("histograms", "images", "audio", "tensors", "graph")}
    assert found == {"histograms": ["h"], "images": ["i", "v"], "audio": ["a"], "tensors": ["t"], "graph": True}
    shapes = {node.name: node.attr["_output_shapes"].list.shape[0] for node in events.Graph().node}
    assert [dim.size for dim in shapes["Linear/linear"].dim] == [1, 3]


def test_a_video_moves(tmp_path):
    oracle("tensorboard")
    from PIL import Image

    video = np.random.default_rng(0).integers(0, 256, (1, 4, 3, 5, 6), dtype=np.uint8)
    with SummaryWriter(tmp_path) as writer:
        writer.add_video("v", video, fps=2)
    ((_, value),) = written(tmp_path)[".", "v"]
    image = Image.open(io.BytesIO(value.image.encoded_image_string))
    assert image.n_frames == 4
    for at in range(4):
        image.seek(at)
        assert image.info["duration"] == 500
        np.testing.assert_array_equal(np.asarray(image.convert("RGB")), video[0, at].transpose(1, 2, 0))
