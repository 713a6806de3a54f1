"""SummaryWriter: what it hands to the package tensorboard, whose messages are made here from their definition."""

import io
import itertools
import struct
import sys
import types
import wave
import zlib

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import weft
from weft.utils.tensorboard import SummaryWriter

rng = np.random.default_rng(0)

# Fields by message, as TensorBoard's files define them: name, type, and * for several.
MESSAGES = {
    "Event": "wall_time double, step int64, file_version string, summary Summary, session_log SessionLog",
    "SessionLog": "status SessionStatus",
    "Summary": "value *Value",
    "Value": "tag string, metadata SummaryMetadata, simple_value float, image Image, histo HistogramProto, "
    "audio Audio, tensor TensorProto",
    "SummaryMetadata": "plugin_data PluginData, data_class DataClass",
    "PluginData": "plugin_name string, content bytes",
    "Image": "height int32, width int32, colorspace int32, encoded_image_string bytes",
    "Audio": "sample_rate float, num_channels int64, length_frames int64, encoded_audio_string bytes, "
    "content_type string",
    "HistogramProto": "min double, max double, num double, sum double, sum_squares double, bucket_limit *double, "
    "bucket *double",
    "TensorProto": "dtype DataType, tensor_shape TensorShapeProto, float_val *float, double_val *double, "
    "string_val *bytes",
    "TensorShapeProto": "dim *Dim",
    "Dim": "size int64, name string",
}
ENUMS = {
    "SessionStatus": {"STATUS_UNSPECIFIED": 0, "START": 1},
    "DataClass": {"DATA_CLASS_UNKNOWN": 0, "DATA_CLASS_SCALAR": 1},
    "DataType": {"DT_INVALID": 0, "DT_FLOAT": 1, "DT_DOUBLE": 2, "DT_STRING": 7},
}


def messages():
    """The classes of messages, by name."""
    file = descriptor_pb2.FileDescriptorProto(name="weft_test.proto", package="weft_test", syntax="proto3")
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields.split(", "), 1):
            label, kind = field.split()
            several, kind = kind.startswith("*"), kind.lstrip("*")
            made = message.field.add(name=label, number=number)
            made.label = kinds.LABEL_REPEATED if several else kinds.LABEL_OPTIONAL
            if kind in MESSAGES or kind in ENUMS:
                made.type = kinds.TYPE_MESSAGE if kind in MESSAGES else kinds.TYPE_ENUM
                made.type_name = f".weft_test.{kind}"
            else:
                made.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"weft_test.{name}")) for name in MESSAGES}


@pytest.fixture
def files(monkeypatch):
    """What was written, by folder: in place of files."""
    kinds, written = messages(), {}

    def namespace(kind, **inner):
        return type(kind.__name__, (), {"__new__": lambda cls, **fields: kind(**fields), **inner})

    class EventFileWriter:
        def __init__(self, logdir, max_queue_size=10, flush_secs=120, filename_suffix=""):
            self.events, self.calls = [], []
            written.setdefault(str(logdir), []).append(self)

        def add_event(self, event):
            assert isinstance(event, kinds["Event"])
            assert "closed" not in self.calls
            self.events.append(kinds["Event"].FromString(event.SerializeToString()))

        def flush(self):
            self.calls.append("flushed")

        def close(self):
            self.calls.append("closed")

    summary = types.ModuleType("summary_pb2")
    summary.Summary = namespace(kinds["Summary"], **{name: kinds[name] for name in ("Value", "Image", "Audio")})
    summary.HistogramProto = kinds["HistogramProto"]
    log = types.ModuleType("event_pb2")
    log.Event, log.SessionLog = kinds["Event"], namespace(kinds["SessionLog"], START=1)
    writer = types.ModuleType("event_file_writer")
    writer.EventFileWriter = EventFileWriter
    proto = types.ModuleType("proto")
    proto.summary_pb2, proto.event_pb2 = summary, log
    names = "tensorboard tensorboard.compat tensorboard.summary tensorboard.summary.writer".split()
    modules = {name: types.ModuleType(name) for name in names}
    modules |= {"tensorboard.compat.proto": proto, "tensorboard.summary.writer.event_file_writer": writer}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return written


def only(files, folder="here"):
    """The only value that was written, and its step."""
    (writer,) = files[folder]
    (event,) = writer.events
    (value,) = event.summary.value
    return value, event.step


@pytest.mark.parametrize("value", [2.5, weft.tensor(2.5, requires_grad=True), np.float32(2.5), weft.tensor([2.5])])
def test_scalars(files, value):
    SummaryWriter("here").add_scalar("/loss", value, 7, walltime=3.0)
    got, step = only(files)
    assert (got.tag, got.simple_value, step) == ("loss", 2.5, 7)
    assert files["here"][0].events[0].wall_time == 3.0


@pytest.mark.parametrize("double", [False, True])
def test_scalars_in_the_new_style(files, double):
    SummaryWriter("here").add_scalar("loss", 0.1, new_style=True, double_precision=double)
    got, _ = only(files)
    assert got.metadata.plugin_data.plugin_name == "scalars"
    assert got.metadata.data_class == 1
    assert (got.tensor.dtype, list(got.tensor.float_val), list(got.tensor.double_val)) == (
        (2, [], [0.1]) if double else (1, [np.float32(0.1)], [])
    )


def test_one_number_is_a_scalar(files):
    with pytest.raises(ValueError, match="not 2 of them"):
        SummaryWriter("here").add_scalar("loss", [1, 2])


def test_several_scalars(files):
    with SummaryWriter("here") as writer:
        writer.add_scalars("a/b", {"x": 1, "y": weft.tensor(2)}, 3)
    for name, number in (("x", 1), ("y", 2)):
        value, step = only(files, f"here/a_b_{name}")
        assert (value.tag, value.simple_value, step) == ("a/b", number, 3)
    assert all(writers[0].calls == ["flushed", "closed"] for writers in files.values())


@pytest.mark.parametrize("bins", ["tensorflow", "auto", 10, [-3.0, 0.0, 3.0]])
@pytest.mark.parametrize("most", [None, 3])
def test_histograms(files, bins, most):
    values = np.clip(rng.standard_normal((20, 5)), -2.5, 2.5)
    SummaryWriter("here").add_histogram("w", weft.tensor(values), 1, bins=bins, max_bins=most)
    histo = only(files)[0].histo
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


def test_histograms_of_nothing(files):
    with pytest.raises(ValueError, match="no element"):
        SummaryWriter("here").add_histogram("w", [])
    with pytest.raises(ValueError, match="1 ends of buckets and 2 counts"):
        SummaryWriter("here").add_histogram_raw("w", 0, 1, 2, 1, 1, [1], [1, 1])


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
def test_images(files, form, kind):
    pixels = rng.integers(0, 256, (4, 5, 3) if form != "HW" else (4, 5, 1), dtype=np.uint8)
    given = pixels.transpose(2, 0, 1) if form == "CHW" else pixels.reshape(pixels.shape[: len(form)])
    given = (given / np.float32(255)).astype("float32") + np.float32(1e-4) if kind == "float32" else given
    SummaryWriter("here").add_image("x", weft.tensor(given), 2, dataformats=form)
    value, step = only(files)
    assert step == 2
    assert (decoded(value.image) == pixels).all()


def test_pages_of_images(files):
    images = rng.integers(0, 256, (9, 3, 2, 2), dtype=np.uint8)
    SummaryWriter("here").add_images("x", images)
    page = decoded(only(files)[0].image)
    assert page.shape == (4, 16, 3)
    assert (page[:2, 14:16] == images[7].transpose(1, 2, 0)).all()
    assert (page[2:, :2] == images[8].transpose(1, 2, 0)).all()
    assert not page[2:, 2:].any()


@pytest.mark.parametrize(
    ("shape", "form"), [((2, 2), "CHW"), ((2, 2, 2), "HHW"), ((2, 2, 2), "ABC"), ((5, 2, 2), "CHW")]
)
def test_what_is_no_image(files, shape, form):
    with pytest.raises(ValueError, match="image"):
        SummaryWriter("here").add_image("x", np.zeros(shape), dataformats=form)


def test_figures(files):
    class Figure:
        cleared = False

        def savefig(self, file, format):
            assert format == "png"
            file.write(weft.utils.tensorboard.png(np.full((2, 3, 4), 9, np.uint8)))

        def clear(self):
            self.cleared = True

    figure = Figure()
    SummaryWriter("here").add_figure("x", figure, 1)
    assert (decoded(only(files)[0].image) == np.full((2, 3, 4), 9)).all()
    assert figure.cleared


def test_sounds(files):
    SummaryWriter("here").add_audio("x", weft.tensor([0.0, 1.0, -2.0, 0.5]), sample_rate=8000)
    audio = only(files)[0].audio
    assert (audio.sample_rate, audio.num_channels, audio.length_frames, audio.content_type) == (8000, 1, 4, "audio/wav")
    with wave.open(io.BytesIO(audio.encoded_audio_string)) as sound:
        assert sound.getparams()[:4] == (1, 2, 8000, 4)
        assert np.frombuffer(sound.readframes(4), "<i2").tolist() == [0, 32767, -32767, 16383]


def test_text(files):
    SummaryWriter("here").add_text("note", "grüße", 4)
    value, step = only(files)
    assert (value.tag, step, value.metadata.plugin_data.plugin_name) == ("note/text_summary", 4, "text")
    assert (value.tensor.dtype, list(value.tensor.string_val)) == (7, ["grüße".encode()])
    assert [dim.size for dim in value.tensor.tensor_shape.dim] == [1]


def test_what_comes_before_a_step_counts(files):
    writer = SummaryWriter("here", purge_step=5)
    events = files["here"][0].events
    assert [(event.step, event.session_log.status) for event in events] == [(5, 0), (5, 1)]
    writer.close()
    writer.add_scalar("x", 1, 6)  # into another file
    assert len(files["here"]) == 2


def test_the_folder_has_a_name(files):
    writer = SummaryWriter(comment="_mine")
    assert writer.get_logdir() == writer.log_dir
    assert writer.log_dir.startswith("runs")
    assert writer.log_dir.endswith("_mine")


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        SummaryWriter("here")
