"""The page of `weft view` in Chromium: how large it is, how soon it is there, how long clicks and searches take.

python benchmarks/viewer.py
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weft import symbol as sym
from weft.core.symbol import Symbol
from weft.testing import resnet
from weft.tools import view

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import browser as browsers

UNITS, LAYERS = 50, 4  # a stage has 500 operators: a layer is two, and a unit ends with two more
WIDTH = 16

# Clicks on closed blocks, one after the other, each until its result is on the screen.
CLICKS = """
const done = arguments[arguments.length - 1];
const pane = weft.panes[0], times = [];
const frame = () => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)));
(async () => {
    for (let count = 0; count < 8; count++) {
        const closed = box => box.item.kind === "scope" && !box.open && pane.elements.has(box.id);
        const box = pane.placed.boxes.find(closed);
        if (!box) break;
        const start = performance.now();
        pane.elements.get(box.id).dispatchEvent(new MouseEvent("click", {bubbles: true}));
        await frame();
        times.push(performance.now() - start);
    }
    done(times);
})();"""
SEARCHES = """
const done = arguments[arguments.length - 1], wanted = arguments[0], times = [];
const frame = () => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)));
(async () => {
    for (const text of wanted) {
        const start = performance.now();
        weft.search.value = text;
        weft.search.dispatchEvent(new Event("input"));
        await frame();
        times.push(performance.now() - start);
    }
    done(times);
})();"""
LOADED = "return performance.getEntriesByType('navigation')[0].loadEventEnd"  # from the beginning of the navigation


class Opened(NamedTuple):
    """Bytes of a page, seconds until it is there, and the longest of some clicks and of some searches."""

    size: int
    seconds: float
    click: float
    search: float


def large_network(stages: int) -> tuple[Symbol, dict[str, Any]]:
    """500 operators a stage, in units of equal layers, so that compiling them takes little."""
    rng = np.random.default_rng(0)
    params: dict[str, Any] = {}
    net = sym.Variable("data", shape=(8, WIDTH))
    for stage in range(stages):
        for unit in range(UNITS):
            start = net
            for layer in range(LAYERS):
                name = f"stage{stage}_unit{unit}_layer{layer}"
                params[f"{name}_weight"] = rng.standard_normal((WIDTH, WIDTH)).astype("float32") / WIDTH
                net = sym.tanh(sym.dense(net, units=WIDTH, use_bias=False, name=name), name=f"{name}_tanh")
            net = sym.relu(sym.elemwise_add(start, net, name=f"{name}_add"), name=f"{name}_relu")
    return net, params


def opened(*model: Any, **options: Any) -> Opened:
    """The page of a model, in a window of a laptop."""
    with tempfile.TemporaryDirectory() as folder, browsers.browser() as browser:
        path = Path(folder) / "page.html"
        view(model, titles=["model"], **options).save(path)
        browser.size(1400, 900)
        times = []
        for _ in range(3):
            browser.open(path)
            times.append(browser.until(LOADED))
        browser.run("weft.showMoment(0)")
        clicks = browser.call("execute/async", {"script": CLICKS, "args": []})
        words = ["s", "conv", "unit7", "stage1_unit3_layer2_tanh", "tanh", "no such name"]
        searches = browser.call("execute/async", {"script": SEARCHES, "args": [words]})
        return Opened(path.stat().st_size, min(times) / 1e3, max(clicks) / 1e3, max(searches) / 1e3)


def measured() -> Iterator[tuple[str, Opened]]:
    symbol, params = resnet.get_workload(num_layers=50)
    yield "resnet50", opened(symbol, params, shape={"data": (1, 3, 224, 224)})
    yield "10,000 operators", opened(*large_network(20))
    yield "50,000 operators", opened(*large_network(100))


if __name__ == "__main__":
    for name, page in measured():
        times = f"a click {1e3 * page.click:4.0f} ms  a search {1e3 * page.search:4.0f} ms"
        print(f"{name:<20} {page.size / 1e6:6.2f} MB  {page.seconds:5.2f} s  {times}")
