"""A compilation is one straight line: stages come in order, those of the model once, those of a kernel once each."""

import numpy as np

import weft
from weft.base import config
from weft.compiler.groups import forget_groups
from weft.compiler.stages import watched
from weft.testing import resnet

# The line; besides them there are details: each pass, each decision, each step of the program.
ORDER = "model types graph groups loops text code program executor".split()


def stages_of(model, details=False, **options):
    reached = []
    forget_groups()
    with config.override(cache=False), watched(reached.append, details):
        weft.compile(model, **options)
    return reached


def check_straight(reached):
    titles = [stage.title for stage in reached if stage.title in ORDER]
    once = [title for title in titles if title not in ("loops", "text", "code")]
    assert once == [title for title in ORDER if title in once]
    places = [ORDER.index(title) for title in titles]
    first, last = ORDER.index("loops"), ORDER.index("code")
    inside = [place for place in places if first <= place <= last]
    assert places == sorted(place for place in places if place < first) + inside + sorted(p for p in places if p > last)
    assert titles.count("loops") == titles.count("text")


def test_a_network_goes_through_every_stage_once():
    symbol, params = resnet.get_workload(1, image_shape=(3, 32, 32), num_layers=18, width=0.25)
    reached = stages_of((symbol, params), shape={"data": (1, 3, 32, 32)})
    check_straight(reached)
    kernels = [stage.value for stage in reached if stage.title == "loops"]
    assert len({id(kernel) for kernel in kernels}) == len(kernels) > 10
    (program,) = [stage.value for stage in reached if stage.title == "program"]
    assert len({step.kernel for step in program.plan.steps}) <= len(kernels)


def test_open_shapes_are_typed_when_they_are_known():
    x = weft.symbol.Variable("x", shape=(2, 3))
    check_straight(stages_of(weft.symbol.exp(x)))
    reached = []
    model = weft.compile(weft.symbol.exp(weft.symbol.Variable("x")), shape={"x": (None, 3)})
    with watched(reached.append):
        model(np.zeros((4, 3), "float32"))
        model(np.zeros((4, 3), "float32"))
    assert [stage.title for stage in reached if stage.title in ("types", "program")] == ["types", "program"]
    (typed,) = [stage.value for stage in reached if stage.title == "types"]
    assert typed.fact(typed.outputs[0]).shape == ("x:0", 3)


def test_details_of_a_compilation():
    """Passes hand graphs on to each other, decisions take the cheapest way, and steps are those of the program."""
    symbol, params = resnet.get_workload(1, image_shape=(3, 32, 32), num_layers=18, width=0.25)
    reached = stages_of((symbol, params), details=True, shape={"data": (1, 3, 32, 32)})
    values = lambda title: [stage.value for stage in reached if stage.title == title]
    passes = values("pass")
    assert [run.name for run in passes][:4] == ["FuseQuantised", "SettleInitialisers", "DropEmpty", "SimplifyInference"]
    assert passes[2].before is passes[1].after
    for decision in values("decision"):
        assert decision.costs[decision.chosen] <= min(decision.costs.values()) + 1e-9
    assert {decision.what for decision in values("decision")} == {"register tile", "form of the convolution"}
    (program,) = values("program")
    steps = values("assembled")[-1].steps
    assert [made.code.name for made in steps] == [step.kernel for step in program.plan.steps]
    assert "conv2d" in {node.op_name for made in steps for node in made.nodes}


def test_a_pass_of_a_user_is_told_with_its_file():
    @weft.graph.register_pass("KeepAsItIsForStages")
    def keep(graph):
        return graph

    reached = []
    with watched(reached.append, details=True):
        weft.graph.create(weft.symbol.exp(weft.symbol.Variable("x"))).apply("KeepAsItIsForStages")
    assert [(stage.title, stage.file) for stage in reached] == [("pass", "test_stages.py")]
