"""Corners of eager tensors, as PyTorch has them: 0-d memory, numbers that do not fit, writing to
what a gradient reads, other memory by `data`, and memory that is not there."""

import numpy as np
import pytest
from oracles import oracle
from twins import builtin_of

import weft
from weft.base.errors import Error, OutOfMemory
from weft.eager.functions.all import FUNCTIONS  # noqa: F401  gives tensors their methods
from weft.eager.tensor.tensor import wrap


def value_of(program: str, library):
    """What a program leaves in `r`, or the builtin kind of its error."""
    space = {"t": library}
    try:
        exec(program, space)
    except Exception as error:
        return builtin_of(error)
    made = space["r"]
    return made.tolist() if hasattr(made, "tolist") else made


def same(program: str) -> None:
    assert value_of(program, weft) == value_of(program, oracle("torch"))


@pytest.mark.parametrize("value", [np.bool_(True), np.float32(3), np.int64(4)])
def test_a_tensor_has_memory(value):
    made = wrap(value)
    assert type(made._array) is np.ndarray
    assert made.fill_(0).item() == 0
    assert value == made._array.dtype.type(value)


def test_a_boolean_is_memory_of_its_own():
    x = weft.tensor(True)
    x.view(1)[0] = False
    assert x.item() is False
    assert weft.tensor(True).fill_(False).item() is False
    one, other = weft.tensor(True), weft.tensor(True)
    assert one.data_ptr() != other.data_ptr()


REDUCED = "sum mean prod max min std var any all argmax norm logsumexp".split()


@pytest.mark.parametrize("name", REDUCED)
def test_results_without_dimensions_are_memory(name):
    x = weft.tensor([1.0, 2.0, 4.0])
    made = x.logsumexp(0) if name == "logsumexp" else getattr(x, name)()
    seen = made.view(1)
    assert type(made._array) is np.ndarray
    seen[0] = 0
    assert made.item() == 0


U8 = "x=t.ones(2,dtype=t.uint8);"


@pytest.mark.parametrize(
    "program",
    [
        *[
            f"r=t.{f}"
            for n in (-1, 300, -255, -256, 255)
            for f in (
                f"tensor([{n}],dtype=t.uint8)",
                f"tensor({n},dtype=t.uint8)",
                f"full((2,),{n},dtype=t.uint8)",
                f"scalar_tensor({n},dtype=t.uint8)",
                f"as_tensor([{n}],dtype=t.uint8)",
                f"full((2,),{n},dtype=t.int8)",
            )
        ],
        *[
            U8 + f
            for n in (-1, 300)
            for f in (
                f"r=x+({n})",
                f"r=({n})-x",
                f"r=x*({n})",
                f"r=x//({n})",
                f"r=x/({n})",
                f"r=t.special.xlogy(x,{abs(n)})",
                f"r=x=={n + 256}",
                f"r=x<({n})",
                f"r=x&({n})",
                f"r=x**({n})",
                f"r=x.clamp({n},{n})",
                f"r=t.where(x>0,{n},x)",
                f"r=x.masked_fill(x>0,{n})",
                f"r=x.index_fill(0,t.tensor([0]),{n})",
                f"r=t.full_like(x,{n})",
                f"r=t.add(x,x,alpha={n})",
                f"r=x.fill_({n})",
                f"r=x.add_({n})",
                f"x[0]={n};r=x",
                f"x[:]={n};r=x",
                f"x[t.tensor([0])]={n};r=x",
                f"x[t.tensor([True,False])]={n};r=x",
            )
        ],
        "r=t.tensor([-1.5],dtype=t.uint8)",
        "r=t.tensor([2**31],dtype=t.int32)",
    ],
)
def test_whole_numbers_that_do_not_fit(program):
    same(program)


@pytest.mark.parametrize(
    "program",
    [
        "x.add_(x,alpha=2);r=x",
        "r=t.add(x,x,alpha=2)",
        "r=t.add(x,True,alpha=2)",
        "r=t.add(x,x,alpha=0)",
        "r=t.add(x,1,alpha=2)",
        "x.add_(True,alpha=2);r=x",
        "r=t.add(x,x,alpha=2.5)",
        "r=t.sub(x,x,alpha=2)",
    ],
)
def test_alpha_of_booleans(program):
    same("x=t.tensor([True,False]);" + program)


@pytest.mark.parametrize(
    "program",
    [
        "a=t.zeros(3);a.data=t.ones(2);r=a",
        "a=t.zeros(3);v=a.view(3);a.data=t.ones(2);v.add_(1);r=(a.tolist(),v.tolist(),a._version)",
        "a=t.zeros(3);a.data=t.ones(2,dtype=t.int64);r=a",
        "a=t.zeros(3,requires_grad=True);a.data=t.ones(2,dtype=t.int64);r=a",
        "a=t.zeros(3,requires_grad=True);a.data=t.ones(2);(a*a).sum().backward();r=a.grad",
        "a=t.zeros(3);b=t.ones(3);a.data=b;b.add_(1);r=a",
        "a=t.zeros(4);v=a[2:];a.data=t.ones(4);"
        "r=(v.storage_offset(), v.untyped_storage().data_ptr()==a.untyped_storage().data_ptr())",
        "a=t.zeros(3);a.data=4",
    ],
)
def test_other_memory_by_data(program):
    expected = value_of(program, oracle("torch"))
    if "storage_offset" in program:
        expected = (0, False)  # a view that outlives its tensor's memory has what it looks at
    assert value_of(program, weft) == expected


WRITTEN = {
    "div": "a/b",
    "div by a number": "1/a",
    "hardsigmoid": "t.nn.functional.hardsigmoid(a)",
    "erfinv": "t.erfinv(a/9)",
    "logaddexp": "t.logaddexp(a,b)",
    "logaddexp2": "t.logaddexp2(a,b)",
    "max_pool1d": "t.nn.functional.max_pool1d(a[None],2)",
    "max_pool2d": "t.nn.functional.max_pool2d(a[None,None],(1,2))",
    "max_pool3d": "t.nn.functional.max_pool3d(a[None,None,None],(1,1,2))",
    "the mean beside the variance": "t.var_mean(a,keepdim=True)[1]",
    "the mean beside the deviation": "t.std_mean(a,keepdim=True)[1]",
    "exp": "a.exp()",
    "sigmoid": "a.sigmoid()",
}


@pytest.mark.parametrize("change", ["y+=1", "y.relu_()", "y[0]=0", "y.view(-1)[:1].mul_(2)"])
@pytest.mark.parametrize("name", WRITTEN)
def test_gradients_after_an_output_was_written_to(name, change):
    program = (
        "a=t.tensor([[.3,.9,-.2,.8]],requires_grad=True);b=t.tensor([[2.,1.,4.,3.]],"
        f"requires_grad=True);y={WRITTEN[name]};{change};y.sum().backward();r=a.grad"
    )
    got, expected = (value_of(program, library) for library in (weft, oracle("torch")))
    if isinstance(expected, type) or isinstance(got, type):
        assert got == expected
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "program",
    [
        "v,m=t.var_mean(x);m.backward();r=x.grad",
        "v,m=t.std_mean(x);m.backward();r=x.grad",
        "v,m=t.var_mean(x,unbiased=False);m.backward();r=x.grad",
        "v,m=t.var_mean(x[None],dim=1,keepdim=True);m.sum().backward();r=x.grad",
    ],
)
def test_the_mean_of_one_element(program):
    same("x=t.tensor([2.],requires_grad=True);" + program)


@pytest.mark.parametrize("count", [1, 9, 5000])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_lgamma_is_zero_at_one_and_two(count, kind):
    same(f"r=t.lgamma(t.tensor([1.,2.]*{count},dtype=t.{kind}))")


@pytest.mark.parametrize(
    "program",
    [
        "x.index_put_((t.tensor([],dtype=t.int64),),t.tensor(5.));r=x",
        "x.index_put_((t.tensor([],dtype=t.int64),),t.tensor([]),accumulate=True);r=x",
        "x.index_put_((),t.tensor(5.));r=x",
        "x.index_put_((t.tensor([]),),t.tensor(5.));r=x",
        "x[[]]=4.;r=x",
    ],
)
def test_writing_by_no_indices(program):
    same("x=t.ones(3);" + program)


LARGE = {
    "zeros": lambda: weft.zeros(2**50),
    "empty": lambda: weft.empty(2**62),
    "contiguous": lambda: weft.ones(1).expand(2**50).contiguous(),
    "add": lambda: weft.ones(1).expand(2**50) + 1,
    "negative": lambda: -weft.ones(1).expand(2**50),
    "compare": lambda: weft.ones(1).expand(2**50) == 2,
    "extents": lambda: weft.zeros(2**40, 2**40),
    "randn": lambda: weft.randn(2**50),
    "outer": lambda: weft.ones(2**25).outer(weft.ones(2**25)),
    "resize_": lambda: weft.zeros(1).resize_(2**50),
    "repeat": lambda: weft.ones(1).repeat(2**50),
    "pad": lambda: weft.nn.functional.pad(weft.ones(3), (0, 2**50)),
    "storage": lambda: weft.FloatStorage(2**50),
    "nd": lambda: weft.nd.empty((2**50,)),
}


@pytest.mark.parametrize("name", LARGE)
def test_memory_that_is_not_there(name):
    with pytest.raises(OutOfMemory) as caught:
        LARGE[name]()
    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize(
    "make",
    [
        lambda: weft.zeros([1] * 70),
        lambda: weft.zeros(1).reshape([1] * 70),
        lambda: weft.zeros(1).expand([1] * 70),
        lambda: weft.zeros(1)[(None,) * 70],
    ],
)
def test_more_dimensions_than_there_are(make):
    with pytest.raises(Error, match="at most 64 dimensions"):
        make()


@pytest.mark.parametrize("layout", ["channels_last", "contiguous_format", "preserve_format"])
@pytest.mark.parametrize("call", ["x.float(memory_format=f)", "x.to(memory_format=f)"])
def test_a_memory_format_leaves_the_tensor_as_it_was(call, layout):
    same(
        f"x=t.ones(2,3,4,5);f=t.{layout};y={call};z={call.replace('x', 'y', 1)};"
        "r=(x.stride(),y.stride(),y.data_ptr()==x.data_ptr(),z.data_ptr()==y.data_ptr())"
    )


@pytest.mark.parametrize("name", ["pixel_shuffle", "pixel_unshuffle"])
def test_shuffling_by_one_gives_memory_of_its_own(name):
    same(f"x=t.ones(1,2,3,3);y=t.nn.functional.{name}(x,1);y.add_(1);r=x")
