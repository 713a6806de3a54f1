"""The pass registry and runner. A pass is a function Graph -> Graph that says what it needs and
gives; the runner checks both, and verifies every graph a pass makes."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..base import config
from ..base.errors import Error, GraphError, InvalidType, NotFound, RegistryError
from ..base.forks import held_lock
from ..base.stages import reached
from .bulk import collector_paused
from .graph_attrs import FACT_KEYS
from .op import Op

PassFunction = Callable[[Any], Any]


class Pass(NamedTuple):
    name: str
    run: PassFunction
    requires: tuple[str, ...]
    provides: tuple[str, ...]
    changes_graph: bool
    doc: str
    op_attrs: tuple[str, ...] = ()


class PassRun(NamedTuple):
    """A pass that has run: the graph that it took and the one it gave."""

    name: str
    before: Any
    after: Any


_passes: dict[str, Pass] = {}
_lock = held_lock("table")
_verifiers: list[Callable[[Any], None]] = []


def register_pass(
    name: str,
    *,
    requires: Sequence[str] = (),
    provides: Sequence[str] = (),
    op_attrs: Sequence[str] = (),
    changes_graph: bool = True,
) -> Callable[[PassFunction], PassFunction]:
    """Registers a function Graph -> Graph under a name.

    `requires` are graph attributes that must be there, `provides` those it leaves; `op_attrs` are
    operator attributes that it reads, which some operator must have.

    >>> @register_pass("ReverseOutputsOfDoctest")
    ... def reverse_outputs(graph):
    ...     return graph.replace(outputs=graph.outputs[::-1])
    >>> get_pass("ReverseOutputsOfDoctest").requires
    ()
    """
    _check_names("a pass's name", [name])
    _check_names(f"what pass {name} requires", requires)
    _check_names(f"what pass {name} provides", provides)
    _check_names(f"an operator attribute of pass {name}", op_attrs)

    def register(function: PassFunction) -> PassFunction:
        if not callable(function):
            raise InvalidType(f"pass {name} must be a function Graph -> Graph, not {function!r}")
        doc = (function.__doc__ or "").strip()
        made = Pass(name, function, tuple(requires), tuple(provides), changes_graph, doc, tuple(op_attrs))
        with _lock:
            if name in _passes:
                raise RegistryError(f"pass {name} is already registered")
            _passes[name] = made
        return function

    return register


def _check_names(what: str, names: Any) -> None:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidType(f"{what} is a list of names, not {names!r}")
    for name in names:
        if not name or not isinstance(name, str):
            raise InvalidType(f"{what} must be a non-empty str, not {name!r}")


def get_pass(name: str) -> Pass:
    found = _passes.get(name)
    if found is None:
        close = difflib.get_close_matches(str(name), list(_passes), n=1)
        raise NotFound(
            f"cannot find pass {name} in the registry",
            hint=f"did you mean {close[0]}?" if close else "passes: " + ", ".join(sorted(_passes)),
        )
    return found


def list_passes() -> list[Pass]:
    return sorted(_passes.copy().values())


def apply_passes(graph: Any, names: Sequence[str]) -> Any:
    """Runs passes in order. All names are looked up before any runs."""
    for step in [get_pass(name) for name in names]:
        graph = run_pass(step, graph)
    return graph


@collector_paused
def run_pass(step: Pass, graph: Any) -> Any:
    """Runs one pass, checks what it needs and gives, and verifies the graph it made."""
    for key in step.requires:
        if graph.attr(key) is None:
            givers = [other.name for other in list_passes() if key in other.provides]
            raise GraphError(
                f"pass {step.name} needs graph attribute {key!r}, which is not there",
                hint=f"apply {' or '.join(givers)} first" if givers else "set it before",
            )
    for key in step.op_attrs:
        if not len(Op.get_attr(key)):
            raise GraphError(
                f"pass {step.name} needs operator attribute {key!r}, which no operator has",
                hint=f'Op.register(name).set_attr("{key}", ...)',
            )
    try:
        result = step.run(graph)
    except Error as error:
        error.at(f"pass {step.name}")
        raise
    if not isinstance(result, type(graph)):
        raise GraphError(f"pass {step.name} gave {type(result).__name__} instead of a graph")
    for key in step.provides:
        if result.attr(key) is None and key not in FACT_KEYS:  # facts may all be unknown
            raise GraphError(f"pass {step.name} promised graph attribute {key!r} and gave none")
    if config.get("verify"):
        for verify in _verifiers:
            try:
                verify(result)
            except Error as error:
                error.at(f"graph made by pass {step.name}")
                raise
    reached("pass", step.run, PassRun(step.name, graph, result), detail=True)
    _print(step, graph, result)
    return result


def _print(step: Pass, before: Any, after: Any) -> None:
    """What WEFT_DEBUG asks for."""
    stages = config.get("debug")
    if "summary" in stages:
        counts = [sum(node.op is not None for node in g.indexed.nodes) for g in (before, after)]
        print(f"# pass {step.name}: {counts[0]} -> {counts[1]} operators", file=sys.stderr)
    if "passes" in stages:
        print(f"# after pass {step.name}\n{after.ir()}", file=sys.stderr)


def add_verifier(verify: Callable[[Any], None]) -> None:
    """Has a check run on every graph that a pass makes."""
    _verifiers.append(verify)
