"""Modules hold, name, convert and print what they are given as PyTorch's do: every program runs in both."""

import copy

import pytest
from oracles import oracle
from scenarios import Scenarios, affine, same_outcome

import weft

scenario = Scenarios()


def raised(action):
    """What an action raises, as part of a longer program."""
    try:
        return action()
    except Exception as error:
        kinds = (KeyError, IndexError, AttributeError, TypeError, ValueError, NotImplementedError, RuntimeError)
        what = getattr(error, "what", None) or (error.args[0] if error.args else "")
        return [kind.__name__ for kind in kinds if isinstance(error, kind)], str(what)


# Attributes.


@scenario
def values_go_where_their_kind_belongs(lib):
    m = affine(lib)
    m.plain, m.tensor, m.child = 3, lib.ones(2), affine(lib)
    m.none = None
    return list(m._parameters), list(m._buffers), list(m._modules), sorted(k for k in m.__dict__ if k[0] != "_")


@scenario
def a_name_changes_its_kind(lib):
    m = affine(lib)
    m.child = affine(lib)
    m.a = 1
    m.a = lib.nn.Parameter(lib.ones(1))
    m.seen = lib.nn.Parameter(lib.ones(1))
    m.child = lib.nn.Parameter(lib.ones(2))
    m.b = lib.ones(2)
    m.b = affine(lib)
    m.scratch = affine(lib)
    return list(m._parameters), list(m._buffers), list(m._modules), sorted(k for k in m.__dict__ if k[0] != "_")


@scenario
def a_parameter_becomes_no_tensor(lib):
    affine(lib).weight = lib.ones(2, 2)


@scenario
def a_parameter_becomes_no_number(lib):
    affine(lib).weight = 3


@scenario
def a_parameter_becomes_none(lib):
    m = affine(lib)
    m.weight = None
    return list(m.state_dict()), list(m._parameters), repr(m.weight), [n for n, _ in m.named_parameters()]


@scenario
def a_parameter_becomes_a_module(lib):
    m = affine(lib)
    m.weight = affine(lib)


@scenario
def a_module_becomes_no_number(lib):
    m = affine(lib, child=affine(lib))
    m.child = 5


@scenario
def a_module_becomes_none(lib):
    m = affine(lib, child=affine(lib))
    m.child = None
    return list(m._modules), list(m.children()), repr(m)


@scenario
def a_buffer_becomes_no_number(lib):
    affine(lib).seen = 3


@scenario
def a_buffer_becomes_another_tensor(lib):
    m = affine(lib)
    m.seen = lib.ones(3)
    m.scratch = None
    return m.state_dict(), [n for n, _ in m.named_buffers()], list(m._buffers)


@scenario
def attributes_that_are_not_there(lib):
    return affine(lib).nothing


@scenario
def has_and_deletes(lib):
    m = affine(lib, child=affine(lib), value=3)
    before = [hasattr(m, n) for n in ("weight", "seen", "child", "value", "scratch")]
    del m.weight, m.seen, m.child, m.value, m.scratch
    return before, [hasattr(m, n) for n in ("weight", "seen", "child", "value", "scratch")], list(m.state_dict())


@scenario
def deletes_what_is_not_there(lib):
    del affine(lib).nothing


@scenario
def a_deleted_buffer_may_be_saved_when_it_comes_again(lib):
    m = affine(lib)
    del m.scratch
    m.register_buffer("scratch", lib.ones(1))
    return list(m.state_dict())


@scenario
def persistence_changes(lib):
    m = affine(lib)
    m.register_buffer("seen", lib.ones(1), persistent=False)
    return list(m.state_dict())


@scenario
def names_of_a_module(lib):
    m = affine(lib, child=affine(lib))
    m.add_module("0", affine(lib))
    return [n in dir(m) for n in ("weight", "seen", "child", "forward", "0", "training", "_modules", "nothing")]


def before_init(value):
    def program(lib):
        class Early(lib.nn.Module):
            def __init__(self):
                self.x = value(lib)
                super().__init__()

        return Early()

    return program


BEFORE = {
    "parameter": lambda lib: lib.nn.Parameter(lib.ones(1)),
    "module": lambda lib: lib.nn.Module(),
    "buffer": lambda lib: lib.nn.Buffer(lib.ones(1)),
}


@pytest.mark.parametrize("kind", BEFORE)
def test_what_is_assigned_before_the_beginning(kind):
    same_outcome(before_init(BEFORE[kind]))


@scenario
def numbers_before_the_beginning(lib):
    class Early(lib.nn.Module):
        def __init__(self):
            self.x = 5
            super().__init__()

    return Early().x


@scenario
def registering_before_the_beginning(lib):
    class Early(lib.nn.Module):
        def __init__(self):
            pass

    m = Early()
    return [raised(lambda: m.register_parameter("a", None)), raised(lambda: m.register_buffer("a", None))]


@scenario
def arguments_that_module_does_not_take(lib):
    return [raised(lambda: lib.nn.Module(1, 2)), raised(lambda: lib.nn.Module(a=1))]


@scenario
def arguments_for_the_next_class(lib):
    class Other:
        def __init__(self, a, b=2):
            self.values = a, b

    class Both(lib.nn.Module, Other):
        call_super_init = True

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)

    return Both(1, b=3).values


# Registering.

REFUSED = [
    ("register_parameter", "a.b", lambda lib: None),
    ("register_parameter", "", lambda lib: None),
    ("register_parameter", 3, lambda lib: None),
    ("register_parameter", "seen", lambda lib: None),
    ("register_parameter", "forward", lambda lib: None),
    ("register_parameter", "a", lambda lib: lib.ones(2)),
    ("register_parameter", "a", lambda lib: 3),
    ("register_buffer", "a.b", lambda lib: None),
    ("register_buffer", "", lambda lib: None),
    ("register_buffer", 3, lambda lib: None),
    ("register_buffer", "weight", lambda lib: None),
    ("register_buffer", "a", lambda lib: 3),
    ("add_module", "a.b", lambda lib: None),
    ("add_module", "", lambda lib: None),
    ("add_module", 3, lambda lib: None),
    ("add_module", "weight", lambda lib: None),
    ("add_module", "a", lambda lib: 3),
    ("register_module", "a", lambda lib: lib.ones(2)),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case[0]}-{case[1]}")
def test_what_is_refused(case):
    method, name, value = case
    same_outcome(lambda lib: getattr(affine(lib), method)(name, value(lib)))


@scenario
def parts_that_are_none(lib):
    m = lib.nn.Module()
    m.register_parameter("p", None)
    m.register_buffer("b", None)
    m.add_module("c", None)
    return m.p, m.b, m.c, list(m.parameters()), list(m.buffers()), list(m.children()), m.state_dict(), repr(m)


@scenario
def buffers_that_are_declared(lib):
    m = lib.nn.Module()
    m.a = lib.nn.Buffer(lib.ones(2))
    m.b = lib.nn.Buffer(lib.zeros(1), persistent=False)
    m.c = lib.nn.Buffer()
    m.d = lib.nn.Parameter(lib.ones(1))
    shown = (
        list(m._buffers),
        list(m.state_dict()),
        isinstance(m.a, lib.nn.Buffer),
        isinstance(lib.ones(1), lib.nn.Buffer),
    )
    m.a = lib.nn.Buffer(lib.ones(3), persistent=False)
    return shown, list(m.state_dict()), type(m.a).__name__, m.a.shape


# Paths.


def tree(lib):
    """Modules of which one is there twice."""
    shared = affine(lib)
    m = affine(lib, left=affine(lib, inner=shared), right=lib.nn.Sequential(shared, affine(lib)))
    m.empty = None
    m.tied = m.left.weight
    return m


@scenario
def parts_with_names(lib):
    m = tree(lib)
    return (
        [n for n, _ in m.named_modules()],
        [n for n, _ in m.named_modules(prefix="top", remove_duplicate=False)],
        [n for n, _ in m.named_parameters()],
        [n for n, _ in m.named_parameters("top", recurse=False)],
        [n for n, _ in m.named_parameters(remove_duplicate=False)],
        [n for n, _ in m.named_buffers(prefix="b")],
        [n for n, _ in m.named_buffers(recurse=False)],
        [n for n, _ in m.named_buffers(remove_duplicate=False)],
        [n for n, _ in m.named_children()],
        len(list(m.modules())),
        len(list(m.parameters())),
        len(list(m.buffers())),
        len(list(m.parameters(recurse=False))),
        len(list(m.children())),
    )


@scenario
def children_that_are_the_same_are_told_once(lib):
    one = affine(lib)
    m = lib.nn.Sequential(one, one)
    return [n for n, _ in m.named_children()], len(list(m.children())), list(m.state_dict()), len(m)


@scenario
def a_memo_is_filled(lib):
    m = tree(lib)
    memo = {m.left}
    return [n for n, _ in m.named_modules(memo)], len(memo)


PATHS = [
    "", "left", "left.inner", "right.1", "right.0.weight", "nothing", "left.nothing", "left.weight", "seen", "tied",
    "right.5", "left.inner.seen", "left.inner.bias", "training", "left.inner.scratch", "right",
]  # fmt: skip


@pytest.mark.parametrize("method", ["get_submodule", "get_parameter", "get_buffer"])
@pytest.mark.parametrize("path", PATHS)
def test_parts_by_path(method, path):
    same_outcome(lambda lib: getattr(tree(lib), method)(path))


SET = [("left", False), ("left.inner", True), ("new", False), ("new", True), ("left.new", False), ("", False)]
SET += [("nothing.new", False), ("weight", False), ("left.weight.x", False), ("right.0", True)]


@pytest.mark.parametrize(("path", "strict"), SET)
def test_modules_are_set_by_path(path, strict):
    def program(lib):
        m = tree(lib)
        m.set_submodule(path, lib.nn.Sequential(), strict)
        return repr(m)

    same_outcome(program)


@scenario
def what_is_set_by_path_is_a_module(lib):
    return tree(lib).set_submodule("left", 3)


# Changes.


@scenario
def functions_are_applied_to_children_first(lib):
    m, seen = tree(lib), []
    assert m.apply(lambda module: seen.append(type(module).__name__ + str(len(list(module.modules()))))) is m
    return seen


@scenario
def children_apply_as_they_like(lib):
    class Closed(lib.nn.Module):
        def apply(self, fn):
            seen.append("closed")
            return self

        def train(self, mode=True):
            return super().train(False)

        def _apply(self, fn, recurse=True):
            seen.append("not converted")
            return self

    seen = []
    m = lib.nn.Sequential(Closed(), affine(lib))
    m[0].inside = affine(lib)
    m.apply(lambda module: seen.append(type(module).__name__))
    m.eval().train()
    m.double()
    return seen, [module.training for module in m.modules()], [p.dtype for p in m.parameters()]


CONVERSIONS = {
    "double": lambda lib, m: m.double(),
    "float": lambda lib, m: m.double().float(),
    "half": lambda lib, m: m.half(),
    "bfloat16": lambda lib, m: m.bfloat16(),
    "cpu": lambda lib, m: m.cpu(),
    "type": lambda lib, m: m.type(lib.float64),
    "to dtype": lambda lib, m: m.to(lib.float64),
    "to named dtype": lambda lib, m: m.to(dtype=lib.float16),
    "to device": lambda lib, m: m.to("cpu"),
    "to device object": lambda lib, m: m.to(lib.device("cpu")),
    "to both": lambda lib, m: m.to("cpu", lib.float64),
    "to both named": lambda lib, m: m.to(device="cpu", dtype=lib.float64, non_blocking=True),
    "to tensor": lambda lib, m: m.to(lib.ones(1, dtype=lib.float64)),
    "to integer": lambda lib, m: m.to(lib.int64),
    "to complex": lambda lib, m: m.to(lib.complex64),
    "to nothing": lambda lib, m: m.to(None),
    "to what": lambda lib, m: raised(lambda: m.to([1]))[0],
    "to where": lambda lib, m: raised(lambda: m.to("nowhere"))[0],
    "requires_grad_": lambda lib, m: m.requires_grad_(False),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_modules_are_converted(name):
    def program(lib):
        m = affine(lib, child=affine(lib))
        m(lib.ones(1, 2)).sum().backward()
        before = [id(p) for p in m.parameters()]
        made = CONVERSIONS[name](lib, m)
        assert before == [id(p) for p in m.parameters()]
        state = {key: value for key, value in m.state_dict().items() if not value.is_complex()}
        kinds = [str(t.dtype).partition(".")[2] for t in [*m.parameters(), *m.buffers()]]
        grads = [None if p.grad is None else str(p.grad.dtype).partition(".")[2] for p in m.parameters()]
        return made if not isinstance(made, lib.nn.Module) else made is m, state, kinds, grads

    same_outcome(program)


@scenario
def memory_formats(lib):
    m = lib.nn.Module()
    m.weight, m.bias = lib.nn.Parameter(lib.randn(4, 3, 2, 2)), lib.nn.Parameter(lib.randn(4))
    first = m.weight.clone()
    m.to(memory_format=lib.channels_last)
    return m.weight.stride(), m.bias.stride(), bool((m.weight == first).all())


@scenario
def optimisers_keep_their_parameters(lib):
    m = affine(lib)
    weight = m.weight
    m.double()
    return m.weight is weight, weight


@scenario
def empty_memory(lib):
    m = affine(lib)
    weight, pointer = m.weight, m.weight.data_ptr()
    m.to_empty(device="cpu")
    return m.weight is weight, weight.data_ptr() == pointer, weight.shape, weight.requires_grad


@scenario
def modes(lib):
    m = tree(lib)
    before = m.training, m.left.inner.training
    assert m.eval() is m
    m.right.train()
    return before, [module.training for module in m.modules()], raised(lambda: m.train(1))


@scenario
def gradients_are_forgotten(lib):
    m = affine(lib)
    m(lib.ones(1, 2)).sum().backward()
    kept = m.bias.grad
    m.zero_grad(set_to_none=False)
    zeros = m.weight.grad, m.bias.grad is kept
    m.zero_grad()
    return zeros, m.weight.grad


@scenario
def gradients_with_history_are_forgotten(lib):
    m = affine(lib)
    loss = (m(lib.ones(1, 2)) ** 2).sum()
    m.weight.grad = lib.autograd.grad(loss, m.weight, create_graph=True)[0].clone()
    m.zero_grad(set_to_none=False)
    return m.weight.grad, m.weight.grad.grad_fn


@scenario
def no_forward(lib):
    return lib.nn.Module()(1)


@scenario
def calls(lib):
    m = affine(lib)
    return m(lib.ones(3, 2)), m.seen, m.forward(lib.ones(1, 2)), m.seen


# Text and copies.


@scenario
def texts(lib):
    class Lines(lib.nn.Module):
        def __init__(self, extra, *children):
            super().__init__()
            self.extra = extra
            for number, child in enumerate(children):
                self.add_module(f"c{number}", child)

        def extra_repr(self):
            return self.extra

    class Named(Lines):
        def _get_name(self):
            return "Other"

    class Own(lib.nn.Module):
        def __repr__(self):
            return "own\ntext"

    one = Lines("a=1")
    shown = [one, Lines("a\nb"), Lines("", one), Lines("x", one, one), Lines("x\ny", Named("z"))]
    return [repr(m) for m in [*shown, Lines("x", Own(), Lines("", Own())), Named("", None)]]


@scenario
def copies(lib):
    m = tree(lib)
    m.fn = len
    deep, shallow = copy.deepcopy(m), copy.copy(m)
    with lib.no_grad():
        m.weight.zero_()
    shallow.extra = lib.nn.Parameter(lib.ones(1))
    return (
        deep.weight, shallow.weight, deep.left.inner is deep.right[0], deep.tied is deep.left.weight, repr(deep),
        [n for n, _ in m.named_parameters()], type(deep.weight).__name__,
    )  # fmt: skip


@scenario
def copies_keep_gradients_and_flags(lib):
    m = affine(lib)
    m.bias.requires_grad_(False)
    m(lib.ones(1, 2)).sum().backward()
    deep = copy.deepcopy(m)
    return deep.weight.grad, deep.bias.requires_grad, deep.weight.grad is m.weight.grad


@scenario
def old_states_of_objects_get_what_is_new(lib):
    m = affine(lib)
    state = {key: value for key, value in m.__dict__.items() if not key.endswith(("dict_hooks", "kwargs"))}
    other = type(m).__new__(type(m))
    other.__setstate__(state)
    return other(lib.ones(1, 2)), other.register_forward_hook(lambda *a: None) is not None, list(other.state_dict())


@pytest.mark.parametrize("name", scenario.programs)
def test_both_do_the_same(name):
    same_outcome(scenario.programs[name])


def test_arguments_of_to():
    for arguments, options in (((), {}), ((1, 2, 3, 4), {}), ((), {"kind": 1})):
        with pytest.raises(TypeError, match="combination of arguments"):
            weft.nn.Module().to(*arguments, **options)


def test_replicas_have_tables_of_their_own():
    module = affine(weft, child=affine(weft))
    replica = module._replicate_for_data_parallel()
    del replica.child, replica.seen
    assert (list(module._modules), list(module._buffers), list(replica._parameters)) == (
        ["child"],
        ["seen", "scratch"],
        [],
    )


def test_computed_tensors_are_no_parameters():
    """PyTorch cannot make such a Parameter either; one that got a history is refused."""
    weight = weft.nn.Parameter(weft.ones(2))
    weight._grad_fn = (weight * 2).grad_fn
    with pytest.raises(ValueError, match="non-leaf"):
        weft.nn.Module().register_parameter("weight", weight)


@pytest.mark.parametrize(
    "given",
    [
        None,
        {},
        {"dtype": 1, "device": 2},
        {"factory_kwargs": {"dtype": 1}, "memory_format": 3},
        {"factory_kwargs": {"dtype": 1}, "dtype": 2},
        {"bias": True},
    ],
)
def test_options_of_factories(given):
    torch = oracle("torch")
    try:
        expected = torch.nn.factory_kwargs(given)
    except TypeError:
        with pytest.raises(TypeError, match=r"twice|unexpected"):
            weft.nn.factory_kwargs(given)
    else:
        assert weft.nn.factory_kwargs(given) == expected
