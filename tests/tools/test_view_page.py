"""The page that `weft view` writes, in a browser: what it shows, and what it does when it is used."""

import zlib

import browser as browsers
import numpy as np
import pytest

from weft import symbol as sym
from weft.tools import view

ENTER, ESCAPE, DOWN, RIGHT = "\ue007", "\ue00c", "\ue015", "\ue014"
DRAWN = "requestAnimationFrame(() => requestAnimationFrame(() => done(true)));"
BOXES = """return [...document.querySelectorAll(".canvas .box")].map(box => {
    const b = box.querySelector(".frame").getBoundingClientRect();
    return {id: box.dataset.id, label: box.ariaLabel, x: b.x, y: b.y, width: b.width, height: b.height};
})"""


UNITS = (2, 2, 3, 2)


def staged_network():
    """Units that add to what they read, in four stages; all of one size, so that few kernels are compiled."""
    rng = np.random.default_rng(1)
    params = {}

    def normed(net, name):
        for part in ("gamma", "beta", "moving_mean", "moving_var"):
            params[f"{name}_{part}"] = rng.uniform(0.5, 1, 16).astype("float32")
        return sym.relu(sym.batch_norm(net, name=name), name=f"{name}_relu")

    def conv(net, name, channels, size):
        params[f"{name}_weight"] = rng.standard_normal((16, channels, size, size)).astype("float32")
        padding = (size // 2, size // 2)
        return sym.conv2d(net, channels=16, kernel_size=(size, size), padding=padding, use_bias=False, name=name)

    net = conv(sym.Variable("data", shape=(1, 3, 16, 16)), "stem", 3, 5)
    for stage, units in enumerate(UNITS, 1):
        for unit in range(1, units + 1):
            name = f"stage{stage}_unit{unit}"
            inner = conv(normed(net, f"{name}_bn1"), f"{name}_conv1", 16, 1)
            inner = conv(normed(inner, f"{name}_bn2"), f"{name}_conv2", 16, 1)
            net = sym.elemwise_add(net, inner, name=f"{name}_add")
    return sym.softmax(sym.flatten(net, name="flat"), name="out"), params


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """One page of two models: a small network in stages, and one convolution of the same name as its first."""
    if why := browsers.missing():
        pytest.skip(why)
    x = sym.Variable("data", shape=(1, 3, 16, 16))
    second = sym.relu(sym.conv2d(x, channels=16, kernel_size=(5, 5), strides=(2, 2), name="stem"), name="stem_relu")
    path = tmp_path_factory.mktemp("view") / "page.html"
    view(staged_network(), second, titles=["residual", "plain"], measure=True).save(path)
    return path


@pytest.fixture(scope="module")
def session(page):
    with browsers.browser() as made:
        yield made


@pytest.fixture
def browser(session, page):
    """The page, newly opened, with the graph of the first model alone; it must not complain."""
    session.prefer("light")
    session.size(1200, 800)
    session.open(page)
    choose(session, "Beside it", "none")
    session.console()
    yield session
    assert session.console() == []


def drawn(browser):
    """Waits until what has changed is on the screen."""
    browser.call("execute/async", {"script": f"const done = arguments[arguments.length - 1]; {DRAWN}", "args": []})


def choose(browser, label, value):
    browser.run(
        "const e = document.querySelector(`select[aria-label='${arguments[0]}']`); e.value = arguments[1];"
        "e.dispatchEvent(new Event('change'))",
        label,
        value,
    )
    drawn(browser)


def boxes(browser):
    drawn(browser)
    return {box["id"]: box for box in browser.run(BOXES)}


def labelled(browser, text):
    """The box whose name for screen readers begins with a text."""
    (found,) = [box for box in boxes(browser).values() if box["label"].startswith(text)]
    return found


def press_box(browser, box):
    browser.click_at(box["x"] + 14, box["y"] + 14)


def colours(picture):
    """How many colours the rows of a PNG without a palette have, by their bytes."""
    size, data, at = (0, 0), b"", 8
    while at < len(picture):
        length, kind = int.from_bytes(picture[at : at + 4], "big"), picture[at + 4 : at + 8]
        body = picture[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            size = int.from_bytes(body[:4], "big"), int.from_bytes(body[4:8], "big")
        data += body if kind == b"IDAT" else b""
        at += length + 12
    return size, len(set(zlib.decompress(data)))


def test_boxes_stand_one_below_the_other(browser):
    found = boxes(browser)
    assert {box["label"].split(",")[0] for box in found.values()} >= {f"block stage{n}" for n in (1, 2, 3, 4)}
    stages = [labelled(browser, f"block stage{n}") for n in (1, 2, 3, 4)]
    tops = [stage["y"] for stage in stages]
    assert tops == sorted(tops)
    for one in found.values():
        for other in found.values():
            apart = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            apart |= one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
            assert apart or one is other
    size, tones = colours(browser.screenshot())
    assert size == (1200, 800)
    assert tones > 50  # a blank page has a few


def test_a_block_opens_and_closes(browser):
    before = boxes(browser)
    press_box(browser, labelled(browser, "block stage1"))
    after = boxes(browser)
    frame = labelled(browser, "block stage1")
    inside = [box for name, box in after.items() if name not in before]
    assert len(inside) >= 2
    for box in inside:
        assert frame["x"] <= box["x"]
        assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 1
        assert frame["y"] <= box["y"]
        assert box["y"] + box["height"] <= frame["y"] + frame["height"] + 1
    browser.click("[aria-label='Collapse blocks']")
    assert boxes(browser).keys() == before.keys()


def test_search_goes_to_a_node_inside_blocks(browser):
    browser.press("/")
    browser.press(*"stage2_unit1_conv2")
    browser.until("return document.querySelector('#hits [role=option]')?.textContent.includes('stage2_unit1_conv2')")
    browser.press(ENTER)
    drawn(browser)
    assert browser.run("return document.querySelector('#details .path').textContent") == "stage2_unit1_conv2"
    assert browser.run("return document.querySelector('.box.selected').getAttribute('aria-label')").startswith("conv2d")
    assert "stage2" in str(boxes(browser))


def test_a_kernel_shows_its_code_side_by_side(browser):
    press_box(browser, labelled(browser, "softmax"))
    texts = browser.until("""
        const text = name => document.querySelector(`.${name} pre`)?.textContent ?? "";
        const found = ["loops", "llvm", "assembly"].map(text);
        return found.every(text => text.length > 20) && found""")
    symbol = browser.run("return document.querySelector('#drawer code').textContent")
    assert texts[0].startswith("kernel ")
    assert f"@{symbol}" in texts[1]
    assert f"{symbol}:" in texts[2]
    columns = browser.run(
        "return [...document.querySelectorAll('.column')].map(c => [c.ariaLabel, c.getBoundingClientRect().left])"
    )
    assert [name for name, _ in columns] == ["Source nodes", "Loop IR", "LLVM IR", "Assembly", "Place in memory"]
    lefts = [left for _, left in columns]
    assert lefts == sorted(lefts)
    browser.until("return document.querySelector('.place .slot.used')")
    assert browser.run("return document.querySelectorAll('.sources .links li').length") >= 1
    browser.press(ESCAPE)
    assert browser.run("return document.querySelector('#drawer').hidden")


def test_passes_are_shown_with_what_they_changed(browser):
    stages = browser.run("return [...document.querySelectorAll('.stages span:first-child')].map(e => e.textContent)")
    assert stages[:2] == ["Model", "SimplifyInference"]
    assert stages[-1] == "Kernels"
    browser.click(".stages li:nth-child(2) button")
    drawn(browser)
    note = browser.run("return document.querySelector('.note').textContent")
    assert "SimplifyInference: batch_norm has no kernel of its own" in note
    for _ in range(2):
        browser.click("[aria-label='Expand blocks']")
    drawn(browser)
    assert browser.run("return document.querySelectorAll('.box.new').length") > 3
    choose(browser, "Beside it", "before")
    captions = browser.run("return [...document.querySelectorAll('.caption')].map(e => e.textContent)")
    assert captions == ["residual: Model", "residual: SimplifyInference"]
    for _ in range(2):
        browser.click("[aria-label='Expand blocks']")
    drawn(browser)
    gone = browser.run("return [...document.querySelectorAll('.box.gone')].map(e => e.getAttribute('aria-label'))")
    assert any(label.startswith("batch_norm") for label in gone)


def test_heat_has_a_scale(browser):
    choose(browser, "Heat", "flops")
    heats = browser.run(
        "return [...document.querySelectorAll('.box.heated')].map(e => Number(e.style.getPropertyValue('--heat')))"
    )
    assert max(heats) == 1
    assert min(heats) == 0
    assert "FLOPs: 0" in browser.run("return document.querySelector('.stage > .legend').textContent")
    hottest = browser.run(
        "return [...document.querySelectorAll('.box')].find(e => e.style.getPropertyValue('--heat') == 1).ariaLabel"
    )
    assert hottest.startswith("block stage3")  # which has the most units


def test_plots_have_a_mark_for_every_step(browser):
    steps = browser.run("return weft.program.steps.length")
    browser.click("#tab-timeline")
    bars = browser.run("return [...document.querySelectorAll('.bar')].map(e => e.getBoundingClientRect().left)")
    assert len(bars) == steps
    assert bars == sorted(bars)
    pieces = browser.run("return [...document.querySelectorAll('.piece')].map(e => Number(e.dataset.step))")
    assert set(pieces) == set(range(steps))
    threads = browser.run("return new Set(weft.program.pieces.map(([, thread]) => thread)).size")
    lanes = browser.run("return new Set([...document.querySelectorAll('.piece')].map(e => e.getAttribute('y'))).size")
    assert 1 <= lanes == threads <= browser.run("return weft.program.threads")
    browser.click("#tab-memory")
    arena = browser.run("return weft.program.slots.filter(slot => slot.role === 'arena').length")
    assert browser.run("return document.querySelectorAll('.slot').length") == arena
    browser.click("#tab-roofline")
    assert 5 < browser.run("return document.querySelectorAll('.dot').length") <= steps


def test_two_models_stand_side_by_side(browser):
    choose(browser, "Beside it", "other")
    browser.click(".stages li:first-child button")
    drawn(browser)
    captions = browser.run("return [...document.querySelectorAll('.caption')].map(e => e.textContent)")
    assert captions == ["plain: Model", "residual: Model"]
    browser.click("#tab-compare")
    row = browser.run(
        "return [...document.querySelectorAll('.compared tr')].find(r => r.textContent.startsWith('conv2d')).innerText"
    )
    counts = [int(word) for word in row.split()[1:3]]
    assert counts == [1 + 2 * sum(UNITS), 1]


def test_keys_walk_through_the_graph(browser):
    browser.run("document.querySelector('.canvas').focus()")
    browser.press(DOWN)
    seen = [browser.run("return document.querySelector('.box.selected').ariaLabel")]
    for _ in range(20):
        if seen[-1].startswith("block stage1"):
            break
        browser.press(DOWN)
        drawn(browser)
        seen.append(browser.run("return document.querySelector('.box.selected').ariaLabel"))
    assert seen[0].startswith("input data")
    assert seen[-1].startswith("block stage1")
    browser.press(ENTER)
    drawn(browser)
    assert browser.run("return document.querySelector('.box.selected').getAttribute('aria-expanded')") == "true"
    browser.press(ESCAPE)
    assert browser.run("return document.querySelector('.box.selected')") is None
    browser.run("document.querySelector('#tab-graph').focus()")
    browser.press(RIGHT)
    assert browser.run("return document.querySelector('[aria-selected=true]').textContent") == "Kernels"


def test_dark_and_light(browser):
    paper = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    assert min(browser.run(paper)) > 200
    browser.click("[aria-label='Dark or light']")
    assert max(browser.run(paper)) < 60
    browser.prefer("dark")
    browser.run("delete document.documentElement.dataset.theme")
    assert max(browser.run(paper)) < 60


def test_a_narrow_window_has_everything(browser):
    browser.size(320, 600)
    browser.run("dispatchEvent(new Event('resize'))")
    for tab in ("kernels", "memory", "timeline", "roofline", "compare", "graph"):
        browser.click(f"#tab-{tab}")
        drawn(browser)
        assert browser.run("return document.documentElement.scrollWidth") <= 320
    outside = browser.run(
        "return [...document.querySelectorAll('.tools *, header *')].filter(e => e.checkVisibility() &&"
        "!e.closest('.summary') && e.getBoundingClientRect().right > 321).map(e => e.outerHTML)"
    )
    assert outside == []
    press_box(browser, next(iter(boxes(browser).values())))
    drawn(browser)
    assert browser.run("return document.querySelector('#details').getBoundingClientRect().width") == 320


def test_every_control_has_a_name(browser):
    browser.run("weft.openStep(weft.program, 0)")
    unnamed = browser.run(
        "return [...document.querySelectorAll('button, select, input, [role=button], [tabindex]')].filter(e =>"
        "!(e.ariaLabel || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML)"
    )
    assert unnamed == []


def test_nothing_is_asked_from_a_network(browser):
    assert browser.run("return performance.getEntriesByType('resource').map(e => e.name)") == []
