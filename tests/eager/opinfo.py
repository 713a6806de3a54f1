"""Compares the function table with PyTorch's operator database, function by function.

python tests/eager/opinfo.py              # a line for each function of the table
python tests/eager/opinfo.py add clamp    # with what fails in these
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
from opinfo_lists import (
    ADAPTED,
    ANY_INDICES,
    ANY_VALUES,
    COMPLEX_NOT_IN_PLACE,
    EXCEPTIONS,
    LEFT_OUT,
    OF_HERMITIAN,
    OF_TRIANGLES,
    TIED,
    UNDECIDED,
    VARIANTS_LEFT_OUT,
)
from torch_samples import BFLOAT16, Converter, Foreign, database, plain, samples_of, torch

from weft.eager.autograd.engine import Engine
from weft.eager.autograd.modes import no_grad
from weft.eager.functions.all import FUNCTIONS, TABLE
from weft.eager.tensor.tensor import Tensor, wrap

KINDS = (torch.float32, torch.int64, torch.bool)


class Failure(NamedTuple):
    """What went wrong with one sample."""

    case: str
    why: str


class Tally:
    """How the samples of one function did."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tried = 0
        self.failures: list[Failure] = []
        self.foreign = 0
        self.seconds = 0.0

    @property
    def share(self) -> float:
        return 1.0 if not self.tried else 1 - len(self.failures) / self.tried


def function_of(name: str) -> Callable[..., Any] | None:
    """Our function for an entry of the database, if the table has it."""
    if name in ADAPTED:
        needs, call = ADAPTED[name]
        return call if function_of(needs) is not None else None
    space, _, last = name.rpartition(".")
    found = FUNCTIONS.get(f"weft.{space}" if space else "weft", {}).get(last)
    if found is not None or space:
        return found
    attribute = vars(Tensor).get(name)
    if isinstance(attribute, property):
        return lambda x: getattr(x, name)
    return attribute


def compared() -> list[str]:
    """The functions that both the table and the database have."""
    return sorted(name for name in database() if function_of(name) is not None)


def main_entries(name: str) -> list[Any]:
    """The entries of a function that are compared."""
    left_out = [variant for known, variant in VARIANTS_LEFT_OUT if known == name]
    return [info for info in database()[name] if info.variant_test_name not in left_out]


def tally(name: str, many: bool = False) -> Tally:
    """Runs every sample of a function."""
    made = Tally(name)
    start = time.perf_counter()
    function = function_of(name)
    assert function is not None
    for info in main_entries(name):
        for kind in KINDS:
            label = f"{info.variant_test_name} {kind}".strip()
            for number, sample in enumerate(samples_of(info, kind, many)):
                with counted(made, f"{label} #{number}"):
                    check_sample(info, function, sample)
        _tally_errors(made, info, function)
    made.seconds = time.perf_counter() - start
    return made


FORMS = 8  # samples that in-place and out= forms are tried with


def tally_inplace(name: str) -> Tally:
    """Runs samples of the in-place form, on copies: values, gradients, and refusals."""
    made = Tally(name)
    for info in database()[name]:
        theirs, ours = info.inplace_variant, vars(Tensor).get(f"{name}_")
        if theirs is None or ours is None:
            continue
        for kind in (torch.float32, torch.int64, torch.complex64):
            if kind.is_complex and name in COMPLEX_NOT_IN_PLACE:
                continue
            for number, sample in enumerate(samples_of(info, kind, first=FORMS)):
                if isinstance(sample.input, torch.Tensor):
                    with counted(made, f"{kind} #{number}"):
                        _check_inplace(info.name, theirs, ours, sample)
    return made


def _check_inplace(name: str, theirs: Any, ours: Any, sample: Any) -> None:
    convert = Converter()
    (x, args, options), mine = convert((sample.input, tuple(sample.args), dict(sample.kwargs)))
    case = shown_sample(sample)
    try:
        expected = theirs(x.clone(), *args, **options)
    except Exception as error:
        kind = builtin(error)
        try:
            ours(mine[0].clone(), *mine[1], **mine[2])
        except kind:
            return
        raise AssertionError(f"no {kind.__name__} ({str(error)[:80]}) with {case}") from None
    target = mine[0].clone()
    got = ours(target, *mine[1], **mine[2])
    assert got is target, f"another tensor is returned with {case}"
    assert target._version > 0, f"the version stays with {case}"
    try:
        compare(got, expected, name in ANY_VALUES)
        if convert.leaves and name not in ANY_VALUES:
            compare_gradients(got, expected, convert.leaves)
    except AssertionError as error:
        raise AssertionError(f"{error} with {case}") from None


def _takes_out(name: str) -> bool:
    """Whether the row of a function has `out=`."""
    space, _, last = name.rpartition(".")
    home = f"weft.{space}" if space else "weft"
    rows = [r for r in TABLE.values() if last in (r.name, *r.aliases) and r.space == home]
    return any(row.out for row in rows) and name not in ADAPTED


def tally_out(name: str) -> Tally:
    """Runs samples with `out=`: an empty tensor that is resized, and one of the right shape."""
    made = Tally(name)
    function = function_of(name)
    for info in database()[name]:
        if not (info.supports_out and _takes_out(name)) or info.is_factory_function:
            continue
        for kind in (torch.float32, torch.int64, torch.complex64):
            samples = [s for s in samples_of(info, kind, first=FORMS) if "out" not in s.kwargs]
            for number, sample in enumerate(samples):
                with counted(made, f"{kind} #{number}"), torch.no_grad():
                    _check_out(info, function, sample)
    return made


def _check_out(info: Any, function: Any, sample: Any) -> None:
    theirs, ours = Converter()((sample.input, tuple(sample.args), dict(sample.kwargs)))
    expected = info.op(theirs[0], *theirs[1], **theirs[2])
    with no_grad():
        for empty in (False, True):
            targets = [wrap(np.zeros((0,) if empty else tuple(e.shape), plain(e).dtype)) for e in _tensors(expected)]
            given = targets[0] if isinstance(expected, torch.Tensor) else tuple(targets)
            function(ours[0], *ours[1], **ours[2], out=given)
            any_values = info.name in ANY_VALUES | ANY_INDICES | TIED
            settle = partial(magnitudes, info.name) if info.name in UNDECIDED else _tensors
            for target, value in zip(settle(targets), settle(expected)):
                _close(target._array, plain(value), "out", any_values)


@contextlib.contextmanager
def counted(made: Tally, case: str) -> Iterator[None]:
    try:
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            yield
        made.tried += 1
    except Foreign:
        made.foreign += 1
    except Exception as error:
        made.tried += 1
        made.failures.append(Failure(case, told(error)))


def told(error: Exception) -> str:
    if isinstance(error, AssertionError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]} ({Path(frame.filename).name}:{frame.lineno})"


def check_sample(info: Any, function: Callable[..., Any], sample: Any) -> None:
    case = shown_sample(sample)
    try:
        try:
            _try_sample(info, function, sample, Converter())
        except Inexact:  # PyTorch itself, in double precision, is the judge of rounding
            _try_sample(info, function, sample, Converter(wide=True))
    except (AssertionError, Foreign) as error:
        raise type(error)(f"{error} with {case}") from None
    except Exception as error:
        raise AssertionError(f"{told(error)} with {case}") from error


class Inexact(AssertionError):
    """Values that differ by more than rounding should make them."""


def _try_sample(info: Any, function: Callable[..., Any], sample: Any, convert: Converter) -> None:
    if info.name.startswith("__") and not isinstance(sample.input, torch.Tensor):
        raise Foreign("a method called without a tensor, which no program does")
    theirs, ours = convert((sample.input, tuple(sample.args), dict(sample.kwargs)))
    expected = info.op(theirs[0], *theirs[1], **theirs[2])
    got = function(ours[0], *ours[1], **ours[2])
    if info.name in TIED:
        _settle_ties(function, ours, got, expected)
    if info.name in ANY_INDICES and isinstance(expected, tuple):
        compare(got[1], expected[1], True)
        got, expected = got[0], expected[0]
    if info.name in UNDECIDED:
        got, expected = magnitudes(info.name, got), magnitudes(info.name, expected)
    random = info.name in ANY_VALUES or bool(sample.kwargs.get("dropout_p"))
    compare(got, expected, random)
    if convert.leaves and not random:
        compare_gradients(got, expected, convert.leaves, compared_part(info.name, sample))


def magnitudes(name: str, results: Any) -> list[Any]:
    """The results of a function that gives vectors, these as their magnitudes."""
    values = results[1 if len(results) == 3 else 0]
    count = values.shape[-1]
    found, rest = [values], [each for each in results if each is not values]
    for vectors, kind in zip(rest, UNDECIDED[name].split()):
        found.append((vectors[..., :count, :] if kind == "h" else vectors[..., :count]).abs())
    return found


def _settle_ties(function: Callable[..., Any], ours: Any, got: Any, expected: Any) -> None:
    """Takes over PyTorch's choice among equal elements, where ours stand for the same values."""
    given = inspect.signature(function).bind(ours[0], *ours[1], **ours[2]).arguments
    data, dim = ours[0]._array, given.get("dim", -1)
    mine, yours = _tensors(got)[-1]._array, plain(_tensors(expected)[-1])
    if not data.ndim or mine.shape != yours.shape:
        return
    at = [i if i.ndim == data.ndim else np.expand_dims(i, dim) for i in (mine, yours)]
    same = [np.take_along_axis(data, i, dim) for i in at]
    if np.array_equal(*same):
        mine[...] = yours


def shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(shown(item) for item in value) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={shown(item)}" for key, item in value.items()) + "}"
    return repr(value)


def shown_sample(sample: Any) -> str:
    return f"{shown(sample.input)} {shown(sample.args)} {shown(sample.kwargs)}"[:200]


def compare(got: Any, expected: Any, any_values: bool) -> None:
    """Equal structure, dtypes and shapes, and close values."""
    if isinstance(expected, (tuple, list)) and not isinstance(expected, torch.Size):
        assert isinstance(got, (tuple, list)), f"{type(got).__name__} instead of a tuple"
        assert len(got) == len(expected), f"{len(got)} results instead of {len(expected)}"
        for mine, yours in zip(got, expected):
            compare(mine, yours, any_values)
    elif isinstance(expected, torch.Tensor):
        assert isinstance(got, Tensor), f"{type(got).__name__} instead of a Tensor"
        assert got.requires_grad == expected.requires_grad, f"requires_grad {got.requires_grad}"
        _close(plain(got), plain(expected), "value", any_values)
    else:
        assert plain(got) == plain(expected), f"{got!r} instead of {expected!r}"


# Dtypes of results, and those in which the judge says them.
JUDGED = {(np.dtype("float32"), np.dtype("float64")), (np.dtype("complex64"), np.dtype("complex128"))}


def _close(got: Any, expected: Any, what: str, any_values: bool = False, loose: float = 1) -> None:
    if (got.dtype, expected.dtype) in JUDGED:
        expected = expected.astype(got.dtype)
    assert got.dtype == expected.dtype, f"{what}: dtype {got.dtype} instead of {expected.dtype}"
    assert got.shape == expected.shape, f"{what}: shape {got.shape} instead of {expected.shape}"
    if any_values or not expected.size:
        return
    if expected.dtype == BFLOAT16:
        got, expected = got.astype(np.float32), expected.astype(np.float32)
    if expected.dtype.kind in "biu":
        same = got == expected
    else:
        finite = np.abs(expected[np.isfinite(expected)])
        scale = float(finite.max()) if finite.size else 0.0
        room = loose * (1e-5 + 1e-6 * scale)
        same = np.isclose(got, expected, rtol=2e-5 * loose, atol=room, equal_nan=True)
    if not same.all():
        wrong = np.argwhere(~same)[0]
        at = tuple(int(i) for i in wrong)
        raise Inexact(
            f"{what}: {int((~same).sum())} of {same.size} differ, at {at} {got[at]!r} instead of {expected[at]!r}"
        )


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    return [value] if isinstance(value, (Tensor, torch.Tensor)) else []


def recorded_pairs(got: Any, expected: Any) -> list[tuple[Any, Any]]:
    return [
        (mine, yours)
        for mine, yours in zip(_tensors(got), _tensors(expected))
        if yours.requires_grad and yours.grad_fn is not None
    ]


def weights(rng: np.random.Generator, array: Any) -> Any:
    made = np.asarray(rng.uniform(0.5, 1.5, array.shape))
    if array.dtype.kind == "c":
        made = np.asarray(made + 1j * rng.uniform(-1, 1, array.shape))
    return made


def compared_part(name: str, sample: Any) -> Callable[[Any], Any]:
    """What of a gradient, or of a tensor of gradients, is compared."""
    if name in OF_HERMITIAN:
        return hermitian
    if name in OF_TRIANGLES:
        return upper_triangle if sample.kwargs.get("upper") else lower_triangle
    return lambda x: x


def hermitian(x: Any) -> Any:
    return (x + x.swapaxes(-1, -2).conj()) / 2


def lower_triangle(x: Any) -> Any:
    return np.tril(x) if isinstance(x, np.ndarray) else x.tril()


def upper_triangle(x: Any) -> Any:
    return np.triu(x) if isinstance(x, np.ndarray) else x.triu()


def compare_gradients(got: Any, expected: Any, leaves: list[Any], part: Callable[[Any], Any] = lambda x: x) -> None:
    """Gradients of the outputs weighted with random numbers."""
    pairs = recorded_pairs(got, expected)
    if not pairs:
        return
    rng = np.random.default_rng(7)
    wide = [weights(rng, mine._array) for mine, _ in pairs]
    theirs = [torch.from_numpy(w.copy()).to(y.dtype) for w, (_, y) in zip(wide, pairs)]
    try:
        torch.autograd.backward([y for _, y in pairs], theirs)
    except NotImplementedError:
        return  # PyTorch has none
    grads = tuple(wrap(w.astype(m._array.dtype)) for w, (m, _) in zip(wide, pairs))
    Engine().run_backward(tuple(m for m, _ in pairs), grads, False, False)
    for number, (leaf, ours) in enumerate(leaves):
        if leaf.grad is None:
            assert ours.grad is None or not ours.grad._array.any(), f"gradient {number} given"
            continue
        wanted = plain(leaf.grad.to_dense() if leaf.grad.is_sparse else leaf.grad)
        if ours.grad is None:
            assert not wanted.any(), f"gradient {number} missing"
            continue
        _close(part(ours.grad._array), part(wanted), f"gradient {number}", loose=5)


def _tally_errors(made: Tally, info: Any, function: Callable[..., Any]) -> None:
    if info.error_inputs_func is None:
        return
    torch.manual_seed(0)
    with warnings.catch_warnings(action="ignore"):
        inputs = list(info.error_inputs("cpu"))
    for number, case in enumerate(inputs):
        with counted(made, f"{info.variant_test_name} error #{number}".strip()):
            _check_error(info, function, case)


def _check_error(info: Any, function: Callable[..., Any], given: Any) -> None:
    sample = given.sample_input
    if info.name.startswith("__") and not isinstance(sample.input, torch.Tensor):
        raise Foreign("a method called without a tensor, which no program does")
    theirs, ours = Converter()((sample.input, tuple(sample.args), dict(sample.kwargs)))
    try:
        info.op(theirs[0], *theirs[1], **theirs[2])
    except Exception as error:
        kind = builtin(error)
    else:
        raise Foreign("PyTorch does not refuse it")
    case = shown_sample(sample)
    wanted = f"no {kind.__name__} ({given.error_regex[:80]})"
    try:
        function(ours[0], *ours[1], **ours[2])
    except Exception as error:
        if isinstance(error, kind):
            return
        raise AssertionError(f"{wanted} but {told(error)} with {case}") from error
    raise AssertionError(f"{wanted} with {case}")


def builtin(error: Exception) -> type[Exception]:
    """The builtin class of an error; PyTorch's own classes are children of one."""
    return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


def _forms(name: str) -> Tally:
    made, other = tally_inplace(name), tally_out(name)
    made.tried += other.tried
    made.failures += other.failures
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true", help="show every failure")
    parser.add_argument("--forms", action="store_true", help="in-place and out= instead")
    parser.add_argument("--many", action="store_true", help="the larger set of samples")
    options = parser.parse_args()
    names = [name for name in options.names or compared() if name not in LEFT_OUT]
    total = passed = good = 0
    for name in names:
        if function_of(name) is None or name not in database():
            print(f"{name:32} is not in both the table and the database")
            continue
        result = _forms(name) if options.forms else tally(name, options.many)
        total += result.tried
        passed += result.tried - len(result.failures)
        good += result.share >= 0.95
        if result.failures or options.names:
            note = "  (" + EXCEPTIONS[name] + ")" if name in EXCEPTIONS else ""
            print(
                f"{name:32} {result.tried - len(result.failures):5}/{result.tried:<5} {result.seconds:5.1f} s{note}",
                flush=True,
            )
        limit = None if options.all else 12 if options.names else 1
        for failure in result.failures[:limit]:
            print(f"    {failure.case}: {failure.why}", flush=True)
    print(f"{good} of {len(names)} functions pass 95% of samples; {passed}/{total} samples pass")


if __name__ == "__main__":
    main()
