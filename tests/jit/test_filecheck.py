"""FileCheck agrees with PyTorch's on what a text has."""

import random

import pytest
from oracles import oracle

from weft._C import FileCheck, parse_ir

TEXT = "alpha beta\ngamma delta\nalpha zeta\neta\nbeta alpha\n"
WORDS = "alpha beta gamma delta zeta eta zz".split() + ["alpha b"]
METHODS = "check check_next check_same check_not check_dag check_count".split()


def added(checker, steps):
    for method, word, count, exactly in steps:
        if method == "check_count":
            checker.check_count(word, count, exactly)
        else:
            getattr(checker, method)(word)
    return checker


def verdict(checker, steps):
    try:
        added(checker, steps).run(TEXT)
    except RuntimeError as error:
        return str(error).split("\n")[0].rstrip(":")
    return None


@pytest.mark.parametrize("seed", range(10))
def test_verdicts_are_theirs(seed):
    draw, torch = random.Random(seed), oracle("torch")
    for _ in range(300):
        steps = [
            (draw.choice(METHODS), draw.choice(WORDS), draw.randint(1, 2), draw.random() < 0.5)
            for _ in range(draw.randint(1, 4))
        ]
        ours, theirs = verdict(FileCheck(), steps), verdict(torch._C.FileCheck(), steps)
        assert (ours is None) == (theirs is None), (steps, ours, theirs)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([("check", "zz", 1, False)], ['Expected to find "zz" but did not find it', "<--- HERE", "From CHECK: zz"]),
        ([("check_not", "eta", 1, False)], ['Expected to not find "eta" but found it', "       ~~~ <--- HERE"]),
        ([("check_count", "alpha", 4, False)], ['Expected to find "alpha"', "From CHECK-COUNT-4: alpha"]),
        ([("check", "alpha", 1, False), ("check_same", "delta", 1, False)], ["From CHECK-SAME: delta"]),
        ([("check_regex", "q+", 1, False)], ['Expected to find regex "q+" but did not find it']),
        ([("check_dag", "zeta", 1, False), ("check_dag", "no", 1, False)], ["From CHECK-DAG: no"]),
        ([], ["No checks have been added"]),
    ],
)
def test_what_is_wrong_is_shown(steps, told):
    with pytest.raises(RuntimeError) as caught:
        added(FileCheck(), steps).run(TEXT)
    for text in told:
        assert text in str(caught.value)


def test_what_comes_after_an_expression():
    """Of this PyTorch's own counts from another place than the one it found."""
    FileCheck().check_regex("g.m+a").check("delta").check_regex(r"z\w+").check_not("gamma").run(TEXT)
    with pytest.raises(RuntimeError, match="Expected to find"):
        FileCheck().check_regex("delta").check("gamma").run(TEXT)


def test_checks_in_comments():
    FileCheck().run("# CHECK: alpha\n# CHECK-NEXT: gamma\n#  CHECK-COUNT-1: zeta\n# CHECK-NOT: zeta\n", TEXT)
    FileCheck().run("# CHECK-COUNT-EXACTLY-3: alpha", TEXT)
    with pytest.raises(RuntimeError, match="Expected to not find"):
        FileCheck().run("# CHECK-COUNT-EXACTLY-2: alpha", TEXT)
    with pytest.raises(RuntimeError, match="Could not parse check at"):
        FileCheck().run("# CHECK-FOO: alpha\n", TEXT)
    with pytest.raises(RuntimeError, match="No checks"):
        FileCheck().run("alpha\n", TEXT)


def test_checks_of_a_graph():
    graph = parse_ir("graph(%x):\n  %y = aten::relu(%x)\n  %z = aten::mul(%y, %x)\n  return (%z)")
    FileCheck().check("aten::relu").check_next("aten::mul").check_not("aten::add").run(graph)


def test_source_that_is_highlighted():
    FileCheck().check_source_highlighted("beta").run("  x beta\n    ~~~~ <--- HERE\n")
    for text in ("  x beta\n", "  x beta\n   ~~~~~ <--- HERE\n", "  x beta\n    ~~ <--- HERE\n"):
        with pytest.raises(RuntimeError, match="highlighted but it is not"):
            FileCheck().check_source_highlighted("beta").run(text)


def test_checks_that_check_nothing(capsys):
    with pytest.raises(RuntimeError, match="checks nothing"):
        FileCheck().check_count("x", 0)
    with pytest.raises(RuntimeError, match="no regular expression"):
        FileCheck().check_regex("(")
    checker = FileCheck().check("never run")
    del checker
    assert "You have not run this instance of FileCheck!" in capsys.readouterr().out
