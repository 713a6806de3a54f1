import copy
import dataclasses
import pickle

import pytest

from weft.base.device import Device, context, cpu
from weft.base.errors import InvalidType, InvalidValue


def test_fields_and_text():
    device = cpu(2)
    assert (device.type, device.index, device.device_type, device.device_id) == ("cpu", 2, 1, 2)
    assert (str(device), repr(device)) == ("cpu(2)", "Device(type='cpu', index=2)")


def test_equality_and_names():
    assert cpu() == context("cpu") == context("llvm", 0) == Device("cpu")
    assert len({cpu(0), cpu(1), context("llvm", 1)}) == 2
    assert copy.deepcopy(cpu(1)) == pickle.loads(pickle.dumps(cpu(1))) == cpu(1)


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        cpu().index = 3


@pytest.mark.parametrize(
    ("kind", "index", "error", "message"),
    [
        ("metal", 0, InvalidValue, "weft runs on cpu"),
        ("", 0, InvalidValue, "unknown device ''"),
        ("cpu", -1, InvalidValue, "device index -1 is negative"),
        ("cpu", "0", InvalidType, "a whole number, not '0'"),
        (None, 0, InvalidType, "named by a string, not None"),
        (["cpu"], 0, InvalidType, "named by a string"),
    ],
)
def test_refused(kind, index, error, message):
    with pytest.raises(error, match=message):
        context(kind, index)
