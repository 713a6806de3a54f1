"""Writes weft/frontend/mxnet/signatures.py from a dump of MXNet's operators.

python tests/frontend/make_mxnet_signatures.py mxnet_ops.json

The dump maps each operator name to {"real_name": ..., "args": [[name, type], ...]}, as the library
itself describes them (MXSymbolGetAtomicSymbolInfo). Operators without a converter are left out.
"""

import ast
import json
import re
import sys
import textwrap
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "weft" / "frontend" / "mxnet"
HEADER = '''"""Inputs and attributes of MXNet 1.9.1's operators, and other names that they have.

Written by tests/frontend/make_mxnet_signatures.py. A row is "name other names: inputs | attribute:kind=default ...",
and goes on where lines are indented; an input that ends in * stands for any number, a kind that ends in ? may be None.
"""

'''
KINDS = {
    "boolean": "bool",
    "float": "float",
    "double": "float",
    "real_t": "float",
    "int": "int",
    "long": "int",
    "Shape": "ints",
    "Shape(tuple)": "ints",
    "tuple of <long>": "ints",
    "tuple of <float>": "floats",
    "tuple of <double>": "floats",
    "string": "text",
}
# Inputs that the dump does not list among the arguments.
MORE_INPUTS = {
    "log_softmax": ["length"],
    "BatchNorm_v1": ["moving_mean", "moving_var"],
    "IdentityAttachKLSparseReg": ["moving_avg"],
    "_CrossDeviceCopy": ["data"],
    "Crop": ["data*"],
}
# Attributes that nodes have, though the dump does not list them.
MORE_ATTRIBUTES = {"_npi_concatenate": ["axis:int?=0"]}
UNBROKEN = {"break_long_words": False, "break_on_hyphens": False}
MORE_DEFAULTS = {("smooth_l1", "scalar"): "1"}


def converted_names():
    """The names in @converter(...) and ALIKE, without importing what this script writes."""
    names = set()
    for path in (FOLDER / "convert").glob("*.py"):
        text = path.read_text()
        for row in re.findall(r"@converter\(([^@]*?)\)\ndef ", text, re.DOTALL):
            names.update(re.findall(r'"(\w+)"', row))
    return names


def main():
    dump = json.loads(Path(sys.argv[1]).read_text())
    names = converted_names() | registered_names()
    rows = {name: row(name, dump[name]["args"]) for name in sorted(names) if name in dump}
    others = {name: [] for name in rows}
    for alias, entry in sorted(dump.items()):
        if alias != entry["real_name"] in others:
            others[entry["real_name"]].append(alias)
    unknown = sorted(names - set(dump))
    if unknown:
        sys.exit(f"MXNet has no operators {unknown}")
    lines = [f"{' '.join([name, *others[name]])}: {form}".rstrip() for name, form in rows.items()]
    wrapped = [part for line in lines for part in textwrap.wrap(line, 120, subsequent_indent="    ", **UNBROKEN)]
    (FOLDER / "signatures.py").write_text(HEADER + "\n".join(['ROWS = """\\', *wrapped, '"""']) + "\n")


def registered_names():
    try:
        from weft.frontend.mxnet import importer  # noqa: F401
        from weft.frontend.mxnet.registry import TABLE
    except ImportError:
        return set()
    return set(TABLE.supported())


def row(name, arguments):
    inputs, attributes = list(MORE_INPUTS.get(name, ())) if name == "Crop" else [], []
    for key, form in arguments:
        if form.startswith(("NDArray", "Symbol")):
            if name != "Crop":
                inputs.append(key + ("*" if form.endswith("[]") else ""))
        else:
            more = MORE_DEFAULTS.get((name, key))
            attributes.append(attribute(key, form) + (f"={more}" if more else ""))
    attributes += MORE_ATTRIBUTES.get(name, [])
    if name in MORE_INPUTS and name != "Crop":
        inputs += MORE_INPUTS[name]
    return " ".join([*inputs, "|", *attributes]).removesuffix(" |")


def attribute(key, form):
    kind, _, default = form.partition("default=")
    kind = kind.strip().rstrip(",")
    kind = kind.removesuffix("optional").removesuffix("required").strip().rstrip(",")
    optional = "None" in kind or kind.endswith("or None")
    kind = kind.removesuffix(" or None").removesuffix(" (non-negative)").strip()
    kind = "text" if kind.startswith("{") or not kind else KINDS[kind]
    kind += "?" if optional or default.strip("'") == "None" else ""
    if not default:
        return f"{key}:{kind}"
    return f"{key}:{kind}={shown(default)}"


def shown(default):
    """Without spaces or quotes; a float32 that was printed as a double is shortened."""
    text = ast.literal_eval(default) if default[:1] in "'\"" else default
    text = text.replace("[", "(").replace("]", ")").replace(" ", "")
    if re.fullmatch(r"\d\.\d{6,}(e-\d+)?", text):
        return f"{float(text):.6g}"
    return text


if __name__ == "__main__":
    main()
