// The page: a bar, tabs, and what each tab shows.
import { METRICS, differences, load } from "./data.js";
import { codeView, nodeDetails, scopeDetails } from "./details.js";
import { clear, h } from "./dom.js";
import { Pane } from "./pane.js";
import { lanes, living, memory, roofline, timeline } from "./plots.js";
import { comparison, stepTable } from "./tables.js";
import * as units from "./units.js";

const HITS = 40;

class App {
  constructor(data) {
    this.data = data;
    this.program = data.programs[0];
    this.other = data.programs[1] ?? null;
    this.moment = this.program.snapshots.length - 1;
    this.side = this.other && this.other.model !== this.program.model ? "other" : "none"; // parts of one are not compared
    this.metric = null;
    this.parameters = false;
    this.panes = [new Pane(this, "graph"), new Pane(this, "before")];
    this.build();
    this.tab("graph");
  }

  // The frame of the page

  build() {
    const option = (value, text, selected = false) => h("option", { value, selected }, text);
    const { programs } = this.data;
    this.search = h("input", { type: "search", id: "search", placeholder: "Search nodes and kernels  ( / )", "aria-label": "Search nodes and kernels", autocomplete: "off", role: "combobox", "aria-expanded": "false", "aria-controls": "hits", oninput: () => this.find(), onkeydown: (event) => this.searchKey(event), onfocus: () => this.find() });
    this.hits = h("ul", { id: "hits", role: "listbox", "aria-label": "Found", hidden: true });
    this.theme = h("button", { class: "icon", "aria-label": "Dark or light", title: "Dark or light", onclick: () => this.toggleTheme() }, "◐");
    const choose = (label, now, change) => h("select", { "aria-label": label, onchange: (event) => change(programs[Number(event.target.value)]) }, programs.map((program) => option(program.number, program.title, program === now)));
    this.summary = h("p", { class: "summary" });
    const titles = [["graph", "Graph"], ["kernels", "Kernels"], ["memory", "Memory"], ["timeline", "Timeline"], ["roofline", "Roofline"], ...(programs.length > 1 ? [["compare", "Compare"]] : [])];
    this.tabs = h("div", { role: "tablist", "aria-label": "Views", onkeydown: (event) => this.tabKey(event) }, titles.map(([name, title]) => h("button", { role: "tab", id: `tab-${name}`, "aria-controls": "view", onclick: () => this.tab(name) }, title)));
    this.view = h("main", { id: "view", role: "tabpanel" });
    this.details = h("aside", { id: "details", "aria-label": "Details", hidden: true });
    this.drawer = h("section", { id: "drawer", "aria-label": "Kernel", hidden: true });
    document.getElementById("app").append(
      h("header", {},
        h("div", { class: "title" }, h("span", { class: "brand" }, "weft"), programs.length > 1 ? choose("Program", this.program, (program) => this.chooseProgram(program)) : h("h1", {}, this.program.title)),
        h("div", { class: "search" }, this.search, this.hits), this.theme, this.summary),
      this.tabs, h("div", { class: "body" }, this.view, this.details), this.drawer);
    this.buildGraph(option);
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("click", (event) => { if (!event.target.closest(".search")) this.closeHits(); });
    addEventListener("resize", () => this.resized());
  }

  buildGraph(option) {
    this.stages = h("ol", { class: "stages", "aria-label": "Stages" });
    this.stageSelect = h("select", { class: "stage-select", "aria-label": "Stage", onchange: (event) => this.showMoment(Number(event.target.value)) });
    this.heatSelect = h("select", { "aria-label": "Heat", onchange: (event) => this.chooseHeat(event.target.value) });
    this.sideSelect = h("select", { "aria-label": "Beside it", onchange: (event) => { this.side = event.target.value; this.showGraph(); } });
    const button = (label, sign, act) => h("button", { class: "icon", "aria-label": label, title: label, onclick: act }, sign);
    this.legend = h("div", { class: "legend", "aria-live": "polite" });
    this.note = h("p", { class: "note" });
    const both = (act) => () => this.shownPanes().forEach(act);
    this.bar = h("div", { class: "tools", role: "toolbar", "aria-label": "Graph" }, this.stageSelect, h("label", {}, "Heat ", this.heatSelect), h("label", {}, "Beside ", this.sideSelect),
      h("label", { class: "check" }, h("input", { type: "checkbox", onchange: (event) => { this.parameters = event.target.checked; this.showGraph(); } }), "Parameters"),
      h("span", { class: "buttons" }, button("Expand blocks", "⊞", both((pane) => pane.expand())), button("Collapse blocks", "⊟", both((pane) => pane.collapse())), button("Zoom in", "+", both((pane) => pane.zoom(1.25))), button("Zoom out", "−", both((pane) => pane.zoom(0.8))), button("Fit to window", "Fit", both((pane) => pane.fit()))));
    this.paneRow = h("div", { class: "panes" });
    this.graphView = h("div", { class: "graph" }, h("nav", { "aria-label": "Stages of the compilation" }, h("h2", {}, "Stages"), this.stages), h("div", { class: "stage" }, this.bar, this.note, this.paneRow, this.legend));
    this.captions = [h("p", { class: "caption" }), h("p", { class: "caption" })];
    this.panes.forEach((pane, i) => pane.element.prepend(this.captions[i]));
    this.fillChoices(option);
  }

  fillChoices(option = (value, text, selected = false) => h("option", { value, selected }, text)) {
    const metrics = Object.entries(METRICS).filter(([name]) => name !== "time" || this.program.measured);
    clear(this.heatSelect, option("", "none"), metrics.map(([name, { label }]) => option(name, label, METRICS[name] === this.metric)));
    clear(this.sideSelect, option("none", "nothing", this.side === "none"), option("before", "the stage before", this.side === "before"), this.other ? option("other", this.other.title, this.side === "other") : null);
    clear(this.stageSelect, this.program.snapshots.map((snapshot, i) => option(i, `${i + 1}. ${snapshot.title}`, i === this.moment)));
  }

  chooseProgram(program) {
    this.other = this.program === program ? this.other : this.program;
    this.program = program;
    this.moment = Math.min(this.moment, program.snapshots.length - 1);
    this.fillChoices();
    this.selected(this.panes[0], null);
    this.closeDrawer();
    this.tab(this.now);
  }

  tab(name) {
    this.now = name;
    for (const button of this.tabs.children) {
      const on = button.id === `tab-${name}`;
      button.setAttribute("aria-selected", on);
      button.tabIndex = on ? 0 : -1;
    }
    this.view.setAttribute("aria-labelledby", `tab-${name}`);
    this.summarise();
    this.showTab();
  }

  summarise() {
    const { program } = this;
    const facts = [`${units.whole(program.steps.length)} steps`, `${units.whole(program.kernels.length)} distinct kernels`, `arena ${units.bytes(program.arena_bytes)}`, `constants ${units.bytes(program.constant_bytes)}`, program.run_seconds ? `a run takes ${units.seconds(program.run_seconds)} on ${program.threads} threads` : null, program.isa];
    clear(this.summary, facts.filter(Boolean).map((fact) => h("span", {}, fact)));
    document.title = `${program.title} – weft`;
  }

  showTab() {
    const { program } = this;
    const width = Math.max(280, this.view.clientWidth - 32);
    const step = this.step ?? null;
    const onstep = (number) => this.openStep(program, number);
    const told = program.measured ? "measured on one thread, one step after the other; the best of some runs" : "estimated by the plan; weft view --profile measures";
    const sheet = (title, note, ...children) => h("div", { class: "sheet" }, h("h2", {}, title), note ? h("p", { class: "quiet" }, note) : null, ...children);
    const views = {
      graph: () => this.graphView,
      kernels: () => sheet("Kernels", `Times are ${told}. A row opens its code.`, stepTable(this, program)),
      memory: () => sheet("Memory", "Values between inputs and outputs share one arena: a box is a value, as long as it is alive, at the bytes it has.", living(program, width), memory(program, width, { step, onslot: (slot) => onstep(slot.first) }), familyLegend()),
      timeline: () => sheet("Timeline", `Steps in order, ${told}.`, timeline(program, width, { step, onstep }), program.pieces.length ? [h("h3", {}, "Threads"), h("p", { class: "quiet" }, "What each thread did in one whole run, the shortest of some; thread 0 is the one that called."), lanes(program, width, { step, onstep })] : null, familyLegend(), stepTable(this, program)),
      roofline: () => sheet("Roofline", `A dot is a step, as large as its time is long, ${told}. Lines are what one core of ${program.isa} can do.`, roofline(program, width, { step, onstep }), familyLegend()),
      compare: () => sheet(`${this.program.title} and ${this.other.title}`, "The graphs stand side by side under Graph.", comparison(this.program, this.other)),
    };
    clear(this.view, views[this.now]());
    this.view.className = `on-${this.now}`;
    this.details.hidden = this.now !== "graph" || !this.panes[0].tree?.items.get(this.panes[0].selected);
    if (this.now === "graph") this.showGraph();
  }

  resized() {
    clearTimeout(this.resizing);
    this.resizing = setTimeout(() => { if (this.now !== "graph") this.showTab(); else this.shownPanes().forEach((pane) => pane.apply()); }, 120);
  }

  // The graph

  shownPanes() {
    return this.side === "none" || (this.side === "before" && this.moment === 0) ? this.panes.slice(0, 1) : this.panes;
  }

  showGraph() {
    const { program, moment } = this;
    const options = { parameters: this.parameters };
    this.fillStages();
    const [main, second] = this.panes;
    const shown = this.shownPanes();
    clear(this.paneRow, shown.length > 1 ? [second.element, main.element] : [main.element]);
    this.paneRow.classList.toggle("two", shown.length > 1);
    const beside = this.beside();
    const against = beside ?? (moment > 0 ? { program, moment: moment - 1 } : null);
    const graph = program.graph(moment);
    const kernels = moment === program.snapshots.length - 1;
    const found = against && !(kernels && against.program === program) ? differences(graph, program, against.program.graph(against.moment), against.program) : null;
    main.marks = found?.of;
    main.against = against ? `${against.program === program ? "" : `${against.program.title}, `}${against.program.snapshots[against.moment].title}` : "";
    main.show(program, moment, options);
    if (shown.length > 1) {
      const back = found ? differences(beside.program.graph(beside.moment), beside.program, graph, program) : null;
      second.marks = back ? new Map([...back.of].map(([key, mark]) => [key, mark === "new" ? "gone" : mark])) : null;
      second.against = `${beside.program === program ? "" : `${program.title}, `}${program.snapshots[moment].title}`;
      second.show(beside.program, beside.moment, options);
      this.captions[1].textContent = `${beside.program.title}: ${beside.program.snapshots[beside.moment].title}`;
    }
    this.captions[0].textContent = `${program.title}: ${program.snapshots[moment].title}`;
    this.captions.forEach((caption) => { caption.hidden = shown.length < 2; });
    const snapshot = program.snapshots[moment];
    const operators = graph.nodes.filter((node) => node.op !== "variable").length;
    clear(this.note, h("b", {}, snapshot.title), snapshot.note ? `: ${snapshot.note}. ` : ". ", `${units.whole(operators)} ${kernels ? "steps" : "operators"}. `,
      found ? [h("span", { class: "new" }, `${units.whole(found.fresh)} new`), " ", h("span", { class: "changed" }, `${units.whole(found.changed)} changed`), " ", h("span", { class: "gone", title: found.gone.slice(0, 30).map((node) => node.name).join("\n") }, `${units.whole(found.gone.length)} gone`), this.side === "other" ? ` against ${main.against}` : ""] : null);
    this.stageSelect.value = String(moment);
    this.painted(main);
  }

  beside() {
    if (this.side === "before" && this.moment > 0) return { program: this.program, moment: this.moment - 1 };
    if (this.side !== "other" || !this.other) return null;
    const title = this.program.snapshots[this.moment].title;
    const same = this.other.snapshots.findLastIndex((snapshot) => snapshot.title === title);
    return { program: this.other, moment: same >= 0 ? same : Math.min(this.moment, this.other.snapshots.length - 1) };
  }

  fillStages() {
    const { program } = this;
    clear(this.stages, program.snapshots.map((snapshot, i) => h("li", {}, h("button", { "aria-current": i === this.moment ? "step" : null, title: snapshot.note, onclick: () => this.showMoment(i) }, h("span", {}, snapshot.title), h("span", { class: "number" }, units.whole(snapshot.operators))))));
  }

  showMoment(moment) {
    this.moment = moment;
    this.showGraph();
    const item = this.panes[0].tree.items.get(this.panes[0].selected);
    this.selected(this.panes[0], item ?? null);
  }

  chooseHeat(name) {
    this.metric = METRICS[name] ?? null;
    for (const pane of this.shownPanes()) pane.refresh();
    this.painted(this.panes[0]);
  }

  /** After a pane was drawn: the scale of its colours is told. */
  painted(pane) {
    const { metric } = this;
    clear(this.legend, metric ? [h("span", {}, `${metric.label}: 0`), h("span", { class: "scale", role: "img", "aria-label": "from little to much" }), h("span", {}, units[metric.unit](pane.hottest ?? 0))] : families().map(([name, label]) => h("span", { class: `key ${name}` }, label)));
  }

  mark(pane, item) {
    if (!pane.marks) return null;
    if (item.kind === "node") return pane.marks.get(item.node.key) ?? null;
    const todo = [item];
    while (todo.length) {
      const at = todo.pop();
      if (at.kind === "node" && pane.marks.has(at.node.key)) return "changed";
      for (const child of at.children) todo.push(pane.tree.items.get(child));
    }
    return null;
  }

  // What is selected

  selected(pane, item) {
    this.details.hidden = !item;
    if (!item || this.now !== "graph") return;
    const close = h("button", { class: "icon close", "aria-label": "Close details", onclick: () => { pane.select(null); pane.svg.focus(); } }, "×");
    clear(this.details, close, h("div", {}, item.kind === "node" ? nodeDetails(this, pane, item.node) : scopeDetails(this, pane, item)));
  }

  /** Enter on a node: its kernel, if it became one. */
  open(pane, item) {
    const steps = pane.program.stepsOf(item.node);
    if (steps.length) this.openStep(pane.program, steps[steps.length - 1]);
  }

  openStep(program, number) {
    this.step = number;
    const step = program.steps[number];
    const go = (by) => h("button", { class: "icon", "aria-label": by < 0 ? "Step before" : "Next step", disabled: !program.steps[number + by], onclick: () => this.openStep(program, number + by) }, by < 0 ? "‹" : "›");
    const large = h("button", { class: "icon", "aria-label": "Larger or smaller", onclick: () => this.drawer.classList.toggle("large") }, "⇕");
    this.drawer.hidden = false;
    clear(this.drawer, h("div", { class: "head" }, go(-1), go(1), h("h2", {}, `${number + 1}: ${step.name}`), step.kernel ? h("code", {}, step.kernel.symbol) : null, large, h("button", { class: "icon", "aria-label": "Close kernel", onclick: () => this.closeDrawer() }, "×")), codeView(this, program, number));
    const [pane] = this.panes;
    if (this.now === "graph" && pane.program === program && this.moment === program.snapshots.length - 1) {
      const key = pane.tree.shown.find((node) => node.step === number)?.key;
      if (key !== undefined && pane.selected !== `n${key}`) pane.goto(`n${key}`);
    } else if (["memory", "timeline", "roofline"].includes(this.now)) this.showTab();
  }

  closeDrawer() {
    this.drawer.hidden = true;
    this.step = null;
  }

  /** Shows a node of the model in its first graph, or in the one that has it. */
  gotoName(program, key) {
    if (program !== this.program) this.chooseProgram(program);
    const first = program.firsts.get(key);
    if (!first) return;
    if (this.now !== "graph") this.tab("graph");
    if (!program.graph(this.moment).byKey.has(key)) this.showMoment(first.moment);
    if (!this.panes[0].tree.items.has(`n${key}`)) { this.parameters = true; this.showGraph(); }
    this.panes[0].goto(`n${key}`);
  }

  gotoSource(pane, key) {
    if (!pane.goto(`n${key}`)) this.gotoName(pane.program, key);
  }

  // Search

  find() {
    const wanted = this.search.value.trim().toLowerCase();
    if (!wanted) return this.closeHits();
    const { program, moment } = this;
    const ranked = [];
    const consider = (number, key, op, at) => {
      const rank = this.rank(program.lower[key], op, wanted);
      if (rank !== null) ranked.push({ rank: rank + (at === moment ? 0 : 10), number, at });
    };
    const { nodes, byKey } = program.graph(moment);
    for (const node of nodes) consider(node.number, node.key, node.op, moment);
    if (ranked.length < HITS) // what the graph on the screen has comes first
      for (const [key, { number, moment: at }] of program.firsts)
        if (!byKey.has(key)) consider(number, key, program.strings[program.records[number][1]], at);
    ranked.sort((a, b) => a.rank - b.rank);
    const hit = ({ node, at }, i) => h("li", { role: "option", id: `hit-${i}`, "aria-selected": "false", onclick: () => { this.closeHits(); this.gotoName(program, node.key); this.panes[0].svg.focus(); } },
      h("span", {}, node.name), h("span", { class: "quiet" }, `${node.title}${at === moment ? "" : `, in ${program.snapshots[at].title}`}`));
    clear(this.hits, ranked.length ? ranked.slice(0, HITS).map(({ number, at }) => ({ node: program.record(number), at })).map(hit) : h("li", { class: "quiet" }, "nothing is called so"), ranked.length > HITS ? h("li", { class: "quiet" }, `and ${units.whole(ranked.length - HITS)} more`) : null);
    this.hits.hidden = false;
    this.search.setAttribute("aria-expanded", "true");
    this.hit(0);
  }

  /** How well a node is what is looked for, least first: its name, the start of it, its operator; parameters last. */
  rank(name, op, wanted) {
    const fits = name === wanted ? 0 : name.startsWith(wanted) ? 1 : name.includes(wanted) ? 2 : op.toLowerCase().includes(wanted) ? 3 : null;
    return fits === null ? null : fits + (fits && op === "variable" ? 5 : 0);
  }

  hit(number) {
    const options = [...this.hits.querySelectorAll("[role=option]")];
    if (!options.length) return;
    this.hitNow = (number + options.length) % options.length;
    options.forEach((option, i) => option.setAttribute("aria-selected", i === this.hitNow));
    this.search.setAttribute("aria-activedescendant", `hit-${this.hitNow}`);
    options[this.hitNow].scrollIntoView({ block: "nearest" });
  }

  closeHits() {
    this.hits.hidden = true;
    this.search.setAttribute("aria-expanded", "false");
    this.search.removeAttribute("aria-activedescendant");
  }

  searchKey(event) {
    if (event.key === "ArrowDown") this.hit(this.hitNow + 1);
    else if (event.key === "ArrowUp") this.hit(this.hitNow - 1);
    else if (event.key === "Enter") this.hits.querySelector("[aria-selected=true]")?.click();
    else return;
    event.preventDefault();
  }

  // Keys and colours

  tabKey(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const buttons = [...this.tabs.children];
    const next = buttons[(buttons.findIndex((button) => button.tabIndex === 0) + by + buttons.length) % buttons.length];
    next.click();
    next.focus();
  }

  key(event) {
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "/" && !typing) {
      event.preventDefault();
      this.search.focus();
      this.search.select();
    } else if (event.key === "Escape") {
      if (!this.hits.hidden) { this.closeHits(); this.search.blur(); }
      else if (!this.drawer.hidden) this.closeDrawer();
      else this.panes[0].select(null);
      if (this.now === "graph") this.panes[0].svg.focus();
    }
  }

  toggleTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  }
}

const families = () => [["product", "products"], ["reduce", "reductions, pools, norms"], ["move", "moves"], ["plain", "element-wise"], ["data", "data"]];
const familyLegend = () => h("div", { class: "legend" }, families().slice(0, 4).map(([name, label]) => h("span", { class: `key ${name}` }, label)));

const start = performance.now();
window.weft = new App(load());
window.weftReady = performance.now() - start;
