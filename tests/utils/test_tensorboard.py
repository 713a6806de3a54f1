"""SummaryWriter: what is in its files, read by the definition of the format alone."""

import io
import itertools
import struct
import wave
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft.utils.tensorboard import SummaryWriter
from weft.utils.tensorboard.events import crc32c

rng = np.random.default_rng(0)

# Fields by message, as TensorBoard's files define them: number, name, type, and * for several.
MESSAGES = {
    "Event": "1 wall_time double, 2 step int, 3 file_version str, 4 graph_def Graph, 5 summary Summary, "
    "7 session_log SessionLog",
    "SessionLog": "1 status int",
    "Summary": "1 value *Value",
    "Value": "1 tag str, 2 simple_value float, 4 image Image, 5 histo Histogram, 6 audio Audio, 8 tensor Tensor, "
    "9 metadata Metadata",
    "Metadata": "1 plugin_data PluginData",
    "PluginData": "1 plugin_name str, 2 content bytes",
    "Image": "1 height int, 2 width int, 3 colorspace int, 4 encoded_image_string bytes",
    "Audio": "1 sample_rate float, 2 num_channels int, 3 length_frames int, 4 encoded_audio_string bytes, "
    "5 content_type str",
    "Histogram": "1 min double, 2 max double, 3 num double, 4 sum double, 5 sum_squares double, "
    "6 bucket_limit *double, 7 bucket *double",
    "Tensor": "1 dtype int, 2 tensor_shape Shape, 4 tensor_content bytes, 8 string_val *bytes",
    "Shape": "2 dim *Dim",
    "Dim": "1 size int",
    "Graph": "1 node *Node, 4 versions Versions",
    "Versions": "1 producer int",
    "Node": "1 name str, 2 op str, 3 input *str, 5 attr *Attribute",
    "Attribute": "1 key str, 2 value bytes",
}


def parsed(kind, content):
    """A message from protobuf's wire format, read byte by byte."""
    fields = {number: (name, form) for number, name, form in map(str.split, MESSAGES[kind].split(", "))}
    found = {name: [] if form.startswith("*") else None for name, form in fields.values()}
    file = io.BytesIO(content)

    def varint():
        bits, shift = 0, 0
        while True:
            byte = file.read(1)[0]
            bits |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return bits

    while file.tell() < len(content):
        key = varint()
        name, form = fields[str(key >> 3)]
        scalar = form.lstrip("*")
        wire = {"int": 0, "double": 1, "float": 5}.get(scalar, 2)
        assert key & 7 == wire
        if wire == 0:
            value = varint()
            value -= value >> 63 << 64
        elif wire != 2:
            (value,) = struct.unpack("<d", file.read(8)) if wire == 1 else struct.unpack("<f", file.read(4))
        else:
            value = file.read(varint())
            value = value.decode() if scalar == "str" else value if scalar == "bytes" else parsed(scalar, value)
        found[name] = [*found[name], value] if form.startswith("*") else value
    return SimpleNamespace(**found)


def checksum(content):
    """Castagnoli's, bit by bit."""
    register = 0xFFFFFFFF
    for byte in content:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    register ^= 0xFFFFFFFF
    return ((register >> 15 | register << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events(folder):
    """Those of the files in a folder, of each without the first, which says what it is."""
    found = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content, at, whole = path.read_bytes(), 0, []
        while at < len(content):
            length, check = struct.unpack("<QI", content[at : at + 12])
            body = content[at + 12 : at + 12 + length]
            assert check == checksum(content[at : at + 8])
            assert struct.unpack("<I", content[at + 12 + length : at + 16 + length]) == (checksum(body),)
            whole.append(parsed("Event", body))
            at += length + 16
        assert whole[0].file_version == "brain.Event:2"
        found += whole[1:]
    return found


def only(folder):
    """The only value that was written, and its step."""
    (event,) = events(folder)
    (value,) = event.summary.value
    return value, event.step


@pytest.mark.parametrize("count", [0, 1, 9, 2047, 2048, 2049, 5000, 8192])
def test_checksums_of_any_length(count):
    content = rng.bytes(count)
    turned = crc32c(content)
    assert ((turned >> 15 | turned << 17) + 0xA282EAD8) & 0xFFFFFFFF == checksum(content)


@pytest.mark.parametrize("value", [2.5, weft.tensor(2.5, requires_grad=True), np.float32(2.5), weft.tensor([2.5])])
def test_scalars(tmp_path, value):
    SummaryWriter(tmp_path).add_scalar("loss", value, 7, walltime=3.0)
    got, step = only(tmp_path)
    assert (got.tag, got.simple_value, step) == ("loss", 2.5, 7)
    assert events(tmp_path)[0].wall_time == 3.0


def test_steps_below_zero(tmp_path):
    SummaryWriter(tmp_path).add_scalar("loss", 1, -3)
    assert only(tmp_path)[1] == -3


@pytest.mark.parametrize("double", [False, True])
def test_scalars_in_the_new_style(tmp_path, double):
    SummaryWriter(tmp_path).add_scalar("loss", 0.1, new_style=True, double_precision=double)
    got, _ = only(tmp_path)
    assert got.metadata.plugin_data.plugin_name == "scalars"
    assert (got.tensor.dtype, got.tensor.tensor_shape.dim) == (2 if double else 1, [])
    assert struct.unpack("<d" if double else "<f", got.tensor.tensor_content) == (0.1 if double else np.float32(0.1),)


def test_one_number_is_a_scalar(tmp_path):
    with pytest.raises(ValueError, match="not 2 of them"):
        SummaryWriter(tmp_path).add_scalar("loss", [1, 2])


def test_several_scalars(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalars("a/b", {"x": 1, "y": weft.tensor(2)}, 3)
    for name, number in (("x", 1), ("y", 2)):
        value, step = only(tmp_path / f"a_b_{name}")
        assert (value.tag, value.simple_value, step) == ("a/b", number, 3)


@pytest.mark.parametrize("bins", ["tensorflow", "auto", 10, [-3.0, 0.0, 3.0]])
@pytest.mark.parametrize("most", [None, 3])
def test_histograms(tmp_path, bins, most):
    values = np.clip(rng.standard_normal((20, 5)), -2.5, 2.5)
    SummaryWriter(tmp_path).add_histogram("w", weft.tensor(values), 1, bins=bins, max_bins=most)
    histo = only(tmp_path)[0].histo
    assert (histo.min, histo.max, histo.num) == (values.min(), values.max(), 100)
    np.testing.assert_allclose([histo.sum, histo.sum_squares], [values.sum(), (values**2).sum()])
    limits, counts = np.array(histo.bucket_limit), np.array(histo.bucket)
    assert counts[0] == 0
    assert counts[1]
    assert counts[-1]
    inside = [((values >= low) & (values < high)).sum() for low, high in itertools.pairwise(limits)]
    inside[-1] += (values == limits[-1]).sum()
    assert counts[1:].tolist() == inside
    assert most is None or len(counts) <= most + 1


def test_histograms_of_nothing(tmp_path):
    with pytest.raises(ValueError, match="no element"):
        SummaryWriter(tmp_path).add_histogram("w", [])
    with pytest.raises(ValueError, match="1 ends of buckets and 2 counts"):
        SummaryWriter(tmp_path).add_histogram_raw("w", 0, 1, 2, 1, 1, [1], [1, 1])


def decoded(image):
    """The pixels of a PNG whose lines are as they are."""
    content, at, parts = image.encoded_image_string, 8, {}
    while at < len(content):
        (size,) = struct.unpack(">I", content[at : at + 4])
        name, body = content[at + 4 : at + 8], content[at + 8 : at + 8 + size]
        (check,) = struct.unpack(">I", content[at + 8 + size : at + 12 + size])
        assert check == zlib.crc32(name + body)
        parts[name], at = body, at + size + 12
    width, height, depth, kind = struct.unpack(">IIBB", parts[b"IHDR"][:10])
    channels = {0: 1, 4: 2, 2: 3, 6: 4}[kind]
    assert (depth, width, height, channels) == (8, image.width, image.height, image.colorspace)
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, -1)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, channels)


@pytest.mark.parametrize("form", ["CHW", "HWC", "HW"])
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_images(tmp_path, form, kind):
    pixels = rng.integers(0, 256, (4, 5, 3) if form != "HW" else (4, 5, 1), dtype=np.uint8)
    given = pixels.transpose(2, 0, 1) if form == "CHW" else pixels.reshape(pixels.shape[: len(form)])
    given = (given / np.float32(255)).astype("float32") + np.float32(1e-4) if kind == "float32" else given
    SummaryWriter(tmp_path).add_image("x", weft.tensor(given), 2, dataformats=form)
    value, step = only(tmp_path)
    assert step == 2
    assert (decoded(value.image) == pixels).all()


def test_pages_of_images(tmp_path):
    images = rng.integers(0, 256, (9, 3, 2, 2), dtype=np.uint8)
    SummaryWriter(tmp_path).add_images("x", images)
    page = decoded(only(tmp_path)[0].image)
    assert page.shape == (4, 16, 3)
    assert (page[:2, 14:16] == images[7].transpose(1, 2, 0)).all()
    assert (page[2:, :2] == images[8].transpose(1, 2, 0)).all()
    assert not page[2:, 2:].any()


@pytest.mark.parametrize(
    ("shape", "form"), [((2, 2), "CHW"), ((2, 2, 2), "HHW"), ((2, 2, 2), "ABC"), ((5, 2, 2), "CHW")]
)
def test_what_is_no_image(tmp_path, shape, form):
    with pytest.raises(ValueError, match="image"):
        SummaryWriter(tmp_path).add_image("x", np.zeros(shape), dataformats=form)


def test_figures(tmp_path):
    drawn = rng.integers(0, 256, (2, 2, 3, 4), dtype=np.uint8)

    def figure(at):
        size = SimpleNamespace(get_width_height=lambda: (3, 2))
        return SimpleNamespace(canvas=size, dpi=100, savefig=lambda file, format, dpi: file.write(drawn[at].tobytes()))

    SummaryWriter(tmp_path).add_figure("x", [figure(0), figure(1)], 1)
    page = decoded(only(tmp_path)[0].image)
    assert (page == np.concatenate(list(drawn), axis=1)[:, :, :3]).all()


@pytest.mark.parametrize(("box", "count"), [((2, 3, 10, 12), 68), ((0, 0, 14, 14), 82), ((5, 5, 6, 9), 14)])
def test_frames_in_images(tmp_path, box, count):
    image = rng.integers(0, 255, (3, 15, 15), dtype=np.uint8)
    SummaryWriter(tmp_path).add_image_with_boxes("x", image, weft.tensor([box]))
    page = decoded(only(tmp_path)[0].image)
    red = (page == [255, 0, 0]).all(-1)
    assert red.sum() == count
    assert (page[~red] == image.transpose(1, 2, 0)[~red]).all()
    left, top, right, bottom = box
    assert red[top : bottom + 1, [left, right]].all()
    assert red[[top, bottom], left : right + 1].all()
    with pytest.raises(weft.Error, match="labels"):
        SummaryWriter(tmp_path).add_image_with_boxes("x", image, weft.tensor([box]), labels=["a"])


@pytest.mark.parametrize(("batch", "page"), [(1, (1, 1)), (2, (1, 2)), (4, (2, 2)), (8, (2, 4))])
def test_videos(tmp_path, batch, page):
    video = rng.integers(0, 256, (batch, 3, 3, 2, 5), dtype=np.uint8)
    SummaryWriter(tmp_path).add_video("x", video, fps=8)
    image = only(tmp_path)[0].image
    assert (image.height, image.width) == (2 * page[0], 5 * page[1])
    content, at, frames, delays = image.encoded_image_string, 8, [], []
    while at < len(content):
        size, name = struct.unpack(">I4s", content[at : at + 8])
        body = content[at + 8 : at + 8 + size]
        if name == b"fcTL":
            delays.append(struct.unpack(">HH", body[20:24]))
        elif name in (b"IDAT", b"fdAT"):
            lines = zlib.decompress(body if name == b"IDAT" else body[4:])
            frames.append(np.frombuffer(lines, np.uint8).reshape(image.height, -1)[:, 1:].reshape(-1, image.width, 3))
        at += size + 12
    rows, columns = page
    grid = video.reshape(rows, columns, 3, 3, 2, 5).transpose(2, 0, 4, 1, 5, 3).reshape(3, 2 * rows, 5 * columns, 3)
    assert (np.stack(frames) == grid).all()
    assert delays == [(125, 1000)] * 3


def test_what_is_no_video(tmp_path):
    with pytest.raises(ValueError, match="a video of shape"):
        SummaryWriter(tmp_path).add_video("x", np.zeros((3, 3, 2, 2)))


class Net(weft.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = weft.nn.Sequential(weft.nn.Linear(3, 2), weft.nn.Dropout())
        self.scale = weft.nn.Parameter(weft.ones(2))

    def forward(self, x, parts):
        return self.layers(x) * self.scale + parts[0], self.training


def test_graphs(tmp_path, capsys):
    net = Net()
    SummaryWriter(tmp_path).add_graph(net, (weft.ones(1, 3), [weft.ones(2)]), verbose=True)
    assert net.training
    assert net.layers[1].training
    (event,) = events(tmp_path)
    nodes = {node.name: (node.op.rpartition(".")[2], node.input) for node in event.graph_def.node}
    linear = "Net/Sequential[layers]/Linear[0]"
    assert nodes == {
        "Net/scale": ("Parameter", []),
        f"{linear}/weight": ("Parameter", []),
        f"{linear}/bias": ("Parameter", []),
        "input/input": ("IO Node", []),
        "input/input_1": ("IO Node", []),
        f"{linear}/linear": ("linear", ["input/input", f"{linear}/weight", f"{linear}/bias"]),
        "Net/Sequential[layers]/Dropout[1]/dropout": ("dropout", [f"{linear}/linear"]),
        "Net/mul": ("mul", ["Net/Sequential[layers]/Dropout[1]/dropout", "Net/scale"]),
        "Net/add": ("add", ["Net/mul", "input/input_1"]),
        "output/output": ("IO Node", ["Net/add"]),
    }
    assert len(capsys.readouterr().out.splitlines()) == len(nodes)
    net(weft.ones(1, 3), [weft.ones(2)])  # nothing is recorded any more
    assert not any(module._forward_hooks for module in net.modules())


def test_graphs_have_operators_and_views(tmp_path):
    class Operators(weft.nn.Module):
        def forward(self, x):
            return (-x)[0] > x.T.sum(0)

    SummaryWriter(tmp_path).add_graph(Operators(), weft.ones(2, 2))
    nodes = [(node.op.rpartition(".")[2], node.input) for node in events(tmp_path)[0].graph_def.node]
    assert nodes == [
        ("IO Node", []),
        ("neg", ["input/input"]),
        ("getitem", ["Operators/neg"]),
        ("numpy_T", ["input/input"]),
        ("sum", ["Operators/numpy_T"]),
        ("gt", ["Operators/getitem", "Operators/sum"]),
        ("IO Node", ["Operators/gt"]),
    ]


def test_graphs_have_what_modules_make(tmp_path):
    model = weft.nn.Sequential(weft.nn.Flatten(), weft.nn.ReLU())
    SummaryWriter(tmp_path).add_graph(model, weft.ones(1, 2, 3))
    (event,) = events(tmp_path)
    flat, relu, _ = event.graph_def.node[1:]
    assert (flat.input, relu.input) == (["input/input"], [flat.name])


def test_sounds(tmp_path):
    SummaryWriter(tmp_path).add_audio("x", weft.tensor([0.0, 1.0, -2.0, 0.5]), sample_rate=8000)
    audio = only(tmp_path)[0].audio
    assert (audio.sample_rate, audio.num_channels, audio.length_frames, audio.content_type) == (8000, 1, 4, "audio/wav")
    with wave.open(io.BytesIO(audio.encoded_audio_string)) as sound:
        assert sound.getparams()[:4] == (1, 2, 8000, 4)
        assert np.frombuffer(sound.readframes(4), "<i2").tolist() == [0, 32767, -32767, 16383]


def test_text(tmp_path):
    SummaryWriter(tmp_path).add_text("note", "grüße", 4)
    value, step = only(tmp_path)
    assert (value.tag, step, value.metadata.plugin_data.plugin_name) == ("note/text_summary", 4, "text")
    assert (value.tensor.dtype, list(value.tensor.string_val)) == (7, ["grüße".encode()])
    assert [dim.size for dim in value.tensor.tensor_shape.dim] == [1]


def test_what_comes_before_a_step_counts(tmp_path):
    writer = SummaryWriter(tmp_path, purge_step=5)
    writer.add_scalars("a", {"b": 1}, 5)
    first, second = events(tmp_path)
    assert (first.step, first.session_log, second.step, second.session_log.status) == (5, None, 5, 1)
    assert only(tmp_path / "a_b")[1] == 5
    writer.close()
    writer.add_scalar("x", 1, 6)  # into another file
    assert len(list(tmp_path.glob("events*"))) == 2
    assert events(tmp_path)[2].step == 6


def test_the_folder_has_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    writer = SummaryWriter(comment="_mine", filename_suffix=".end")
    assert writer.get_logdir() == writer.log_dir
    assert writer.log_dir.startswith("runs")
    assert writer.log_dir.endswith("_mine")
    assert len(list((tmp_path / writer.log_dir).glob("events*.end"))) == 1
