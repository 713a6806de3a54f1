"""The operators of ONNX become a page: which weft reads, of which opsets, how they run, and how many of onnx's own
backend tests they pass, by the list of those that are refused.

python -m weft.tools.onnx_table docs/onnx.md tests/frontend/onnx_backend_gaps.txt
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import onnx
from onnx.backend.test.loader import load_model_tests

from ..frontend.onnx import importer  # noqa: F401  registers what reads operators
from ..frontend.onnx.control import CONTROL
from ..frontend.onnx.functions import DEFINED
from ..frontend.onnx.registry import TABLE

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
Operator = tuple[str, str]  # domain, name

_HEAD = """# ONNX

Every operator of ONNX {version} and what weft does with it. *opsets* are the versions that the operator has had; those
in brackets are not read. *runs as* says how: `native` operators are compiled, a `host step` runs in Python between
compiled parts, because no kernel can say the shape of its result or because it works on text or sequences, and
`control` stands for subgraphs that are compiled and run as often as their values say. *cases* counts
[onnx's own backend tests](https://onnx.ai/onnx/api/backend.html) of the operator, and those that pass:
{passed} of {total} in all. Where the expected values were drawn at random, what can be drawn is compared.

The page is written by `make docs`. `tests/frontend/test_onnx_backend.py` runs the cases, and
`tests/frontend/onnx_backend_gaps.txt` lists those that are refused: there, what passes is a failure, and a wrong value
is one everywhere."""


class Cases(NamedTuple):
    """Backend tests of an operator."""

    passed: int = 0
    total: int = 0


def read_gaps(path: Path) -> dict[str, str]:
    """The cases that are refused, with the reason they stand under: lines that are not indented."""
    gaps, reason = {}, ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            gaps[line.strip()] = reason
        elif line and not line.startswith("#"):
            reason = line
    return gaps


def backend_cases() -> dict[str, frozenset[Operator]]:
    """The names of onnx's backend tests, and the operators that each is about: where a function's body is written out,
    the function."""
    models = {case.name.removeprefix("test_"): case for kind in KINDS for case in load_model_tests(kind=kind)}
    found = {}
    for name, case in models.items():
        whole = models.get(name.partition("_expanded")[0], case)
        model = whole.model or onnx.load(f"{whole.model_dir}/model.onnx")
        found[name] = frozenset(_operators_of(model.graph))
    return found


def _operators_of(graph: onnx.GraphProto) -> Iterator[Operator]:
    for node in graph.node:
        yield "" if node.domain == "ai.onnx" else node.domain, node.op_type


def page(gaps: Mapping[str, str]) -> str:
    """The text of the page."""
    cases = backend_cases()
    counted = _counted(cases, gaps)
    versions = _versions()
    rows: dict[str, list[str]] = {}
    for domain, name in sorted({*versions, *TABLE.operators(), *(("", name) for name in CONTROL)}):
        opsets = versions.get((domain, name), ())
        rows.setdefault(domain, []).append(_row(domain, name, opsets, counted.get((domain, name), Cases())))
    passed = sum(name not in gaps for name in cases)
    parts = [_HEAD.format(version=onnx.__version__, passed=passed, total=len(cases))]
    for domain, lines in sorted(rows.items()):
        table = ["| operator | opsets | runs as | cases |", "|---|---|---|---|", *lines]
        parts += [f"## {domain or 'ai.onnx'}", "\n".join(table)]
    parts += ["## Cases that are refused", "\n".join(_refused(gaps))]
    return "\n\n".join(parts) + "\n"


def _counted(cases: Mapping[str, Iterable[Operator]], gaps: Mapping[str, str]) -> dict[Operator, Cases]:
    totals = Counter(operator for found in cases.values() for operator in found)
    refused = Counter(operator for name in gaps for operator in cases.get(name, ()))
    return {operator: Cases(total - refused[operator], total) for operator, total in totals.items()}


def _versions() -> dict[Operator, list[int]]:
    """The opsets in which operators were new, or changed."""
    versions: dict[Operator, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        versions.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    return {operator: sorted(since) for operator, since in versions.items()}


def _row(domain: str, name: str, opsets: Iterable[int], cases: Cases) -> str:
    shown = [str(since) if _is_read(domain, name, since) else f"({since})" for since in opsets]
    newest = max(opsets, default=1)
    count = f"{cases.passed} of {cases.total}" if cases.total else ""
    return f"| {name} | {' '.join(shown)} | {_how(domain, name, newest)} | {count} |"


def _is_read(domain: str, name: str, opset: int) -> bool:
    return (domain, name) in DEFINED or TABLE.find(name, opset, domain) is not None or (not domain and name in CONTROL)


def _how(domain: str, name: str, opset: int) -> str:
    if not domain and name in CONTROL:
        return "control"
    if (domain, name) in DEFINED:
        return "native, as the function that ONNX defines"
    rule = TABLE.find(name, opset, domain)
    if rule is None:
        return "missing"
    if rule.host is not None:
        return "host step"
    return "native" if rule.beside is None else "native; text and sequences by a host step"


def _refused(gaps: Mapping[str, str]) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for name, reason in gaps.items():
        names.setdefault(reason, []).append(name)
    for reason, members in names.items():
        yield f"- {reason}: {', '.join(f'`{name}`' for name in members)}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(read_gaps(Path(sys.argv[2]))), encoding="utf-8")
