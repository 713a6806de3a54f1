"""`weft bench`: a model's speed beside that of other runtimes on the same inputs, and the kernels that take longest."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..base.dtype import dtype_name
from ..base.errors import Error, InvalidValue, NotFound, OpenShapes, Unsupported
from ..base.shape import is_static
from ..base.shown import Shown, table
from ..runtime.cpu.pool import thread_count
from ..runtime.profile import StepTime
from .inputs import RANDOM_INTEGERS, dims_of
from .model_files import Shapes, kind_of, open_model
from .profile import profile_model
from .progress import Stages
from .race import Result, Rules, measure
from .scripts import argument_names, likely_script_shapes, load_script

RUNTIMES = {"ort": "onnxruntime", "onnxruntime": "onnxruntime", "openvino": "openvino", "torch": "torch"}
SLOWEST = 5
ROUNDS = 5

Specs = dict[str, tuple[tuple[int, ...], str]]


@dataclass(frozen=True, repr=False)
class Benchmark(Shown):
    """What each runtime took, and the steps of weft's program that take longest. `ok` if no contender failed."""

    file: str
    threads: int
    inputs: Specs
    results: list[Result]
    slowest: list[StepTime]

    @property
    def ok(self) -> bool:
        return all(not result.failure for result in self.results)

    def ratio(self, name: str) -> float | None:
        """A runtime's best time over weft's: above 1, weft is faster."""
        best = {result.contender: result.best_ms for result in self.results if not result.failure}
        return best[name] / best["weft"] if name in best and best.get("weft") else None

    def text(self, width: int | None = None) -> str:
        shapes = ", ".join(f"{name} {list(shape)}" for name, (shape, _) in self.inputs.items())
        cells = [self._cells(result) for result in self.results]
        headers = ("runtime", "best ms", "median ms", "runs", "times weft's", "load s", "peak MB", "")
        lines = [f"{self.file} on {self.threads} threads, {shapes}", table(headers, cells, width)]
        if self.slowest:
            steps = [
                (f"{1e3 * step.seconds:.3f}", f"{step.share:.0%}", step.name, ", ".join(step.sources))
                for step in self.slowest
            ]
            lines += ["", table(("ms", "share", "kernel that takes longest", "from"), steps, width)]
        return "\n".join(lines)

    def _cells(self, result: Result) -> tuple[str, ...]:
        if result.failure:
            return (result.contender, "-", "-", "-", "-", "-", "-", result.failure)
        ratio = self.ratio(result.contender)
        off = "" if result.error is None else f"outputs within {result.error:.1g}"
        return (
            result.contender,
            f"{result.best_ms:.3f}",
            f"{result.median_ms:.3f}",
            str(result.runs),
            "-" if ratio is None else f"{ratio:.2f}",
            f"{result.load_s:.2f}",
            f"{result.peak_mb:.0f}",
            off,
        )


def bench_model(
    model: Path | str,
    against: Sequence[str] = (),
    *,
    batch: int | None = None,
    shape: Shapes | None = None,
    threads: int | None = None,
    rounds: int = ROUNDS,
    stages: Stages | None = None,
) -> Benchmark:
    """Measures a model file with weft, and with the runtimes `against`: ort, openvino, or torch for TorchScript. Each
    runs in a process of its own; rounds go from one to the next."""
    path, stages = Path(model), stages or Stages()
    names = ["weft", *(_runtime(name, path) for name in against)]
    count = thread_count(threads)
    stages.begin("read")
    inputs = _specs(path, batch, dict(shape or {}))
    stages.begin("race")
    rules = Rules(inputs=inputs, integers=RANDOM_INTEGERS, look=stages.progress)
    results = measure(path.name, path, list(dict.fromkeys(names)), count, batch or 0, rounds, rules)
    stages.begin("profile")
    slowest: list[StepTime] = []
    if not results[0].failure:
        with suppress(Error):  # what runs on tensors has no kernels of its own
            found = profile_model(path, shape={name: dims for name, (dims, _) in inputs.items()}, threads=threads)
            slowest = found.slowest[:SLOWEST]
    return Benchmark(path.name, count, inputs, results, slowest)


def _runtime(name: str, path: Path) -> str:
    if name not in RUNTIMES:
        raise InvalidValue(f"no runtime {name!r}", why="there are ort, openvino, torch", hint="--against ort")
    runtime = RUNTIMES[name]
    script = kind_of(path) == "TorchScript archive"
    if script != (runtime == "torch"):
        runs = "TorchScript archives" if runtime == "torch" else "ONNX files"
        raise Unsupported(f"{runtime} does not run {path.name!r}", why=f"it runs {runs}")
    if find_spec(runtime) is None:
        raise NotFound(f"{runtime} is not installed", hint=f"pip install {runtime}")
    return runtime


def _specs(path: Path, batch: int | None, shapes: dict[str, Sequence[int | str | None]]) -> Specs:
    """Shapes and dtypes of all inputs, with the batch where it is open."""
    if kind_of(path) == "TorchScript archive":
        names = argument_names(load_script(path))
        shapes |= likely_script_shapes(path, {}, shapes)
        missing = [name for name in names if not is_static(tuple(shapes.get(name, (None,))))]
        if missing:
            hint = " ".join(f"--shape {name}=1,3,224,224" for name in missing)
            raise OpenShapes("shapes are not known", why="a TorchScript archive tells none", hint=hint)
        return {name: (tuple(int(dim or 0) for dim in shapes[name]), "float32") for name in names}
    model, taken, _ = open_model(path, shapes)
    if batch is not None:
        for spec in model.inputs:
            dims = dims_of(spec)
            if spec.name in taken and dims:
                shapes[spec.name] = (batch, *dims[1:])
            elif not dims or dims[0] != batch:
                raise InvalidValue(
                    f"the batch of {spec.name!r} is not open", why=f"it is {spec}", hint="leave --batch out"
                )
        model = open_model(path, shapes).model
    made: Specs = {}
    for spec in model.inputs:
        if spec.dtype is None or not is_static(spec.shape):
            raise Unsupported(f"input {spec.name!r} cannot be drawn at random", why=f"it is {spec}")
        made[spec.name] = (spec.shape, dtype_name(spec.dtype))
    return made
