"""Functions are pickled by the name that users find them under."""

import pickle

from weft.eager.functions.all import FUNCTIONS


def test_functions_come_back_from_pickles():
    functions = [(space, name, function) for space in FUNCTIONS for name, function in FUNCTIONS[space].items()]
    assert len(functions) > 800
    for space, name, function in functions:
        assert pickle.loads(pickle.dumps(function)) is function, f"{space}.{name}"
