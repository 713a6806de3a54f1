// What is known of the thing that is selected; and the code of a kernel, its stages side by side.
import { clear, h } from "./dom.js";
import { memory, duration } from "./plots.js";
import * as units from "./units.js";

const table = (rows) => h("dl", { class: "facts" }, rows.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
const part = (title, ...children) => h("section", {}, h("h3", {}, title), ...children);

function links(app, pane, keys) {
  const names = pane.program.names;
  return h("ul", { class: "links" }, keys.slice(0, 60).map((key) => h("li", {}, h("button", { class: "link", onclick: () => pane.goto(`n${key}`), disabled: !pane.tree.items.has(`n${key}`) }, names[key]))), keys.length > 60 ? h("li", { class: "quiet" }, `and ${keys.length - 60} more`) : null);
}

function stepLinks(app, program, steps) {
  return h("ul", { class: "links" }, steps.map((number) => h("li", {}, h("button", { class: "link kernel", onclick: () => app.openStep(program, number) }, `${number + 1}: ${program.steps[number].name}`))));
}

export function nodeDetails(app, pane, node) {
  const { program, tree } = pane;
  const inputs = [...new Set(node.inputs)];
  const readers = (tree.readers.get(`n${node.key}`) ?? []).map((id) => Number(id.slice(1)));
  const steps = program.stepsOf(node);
  const mark = pane.marks?.get(node.key);
  return [
    h("h2", {}, node.title),
    h("p", { class: "path" }, node.name),
    mark ? h("p", { class: `badge ${mark}` }, pane.against ? `${mark === "changed" ? "differs from" : "is not in"} ${pane.against}` : mark) : null,
    table(node.outputs.map((text, i) => [node.outputs.length > 1 ? `output ${i}` : "output", text])),
    node.attrs.length ? part("Attributes", table(node.attrs)) : null,
    node.step >= 0 ? [stepFacts(app, program, program.steps[node.step]), h("button", { class: "wide", onclick: () => app.openStep(program, node.step) }, "Code and memory")] : null,
    inputs.length ? part("Reads", links(app, pane, inputs)) : null,
    readers.length ? part("Is read by", links(app, pane, [...new Set(readers)])) : null,
    node.sources.length ? part("Comes from", h("ul", { class: "links" }, [...new Set(node.sources)].slice(0, 60).map((key) => h("li", {}, h("button", { class: "link", onclick: () => app.gotoSource(pane, key) }, program.names[key]))))) : null,
    node.step < 0 && steps.length ? part(steps.length > 1 ? "Kernels" : "Kernel", stepLinks(app, program, steps)) : null,
  ];
}

export function scopeDetails(app, pane, item) {
  const counts = new Map();
  const todo = [item];
  while (todo.length) {
    const at = todo.pop();
    if (at.kind === "node") counts.set(at.node.op, (counts.get(at.node.op) ?? 0) + 1);
    else for (const child of at.children) todo.push(pane.tree.items.get(child));
  }
  const ops = [...counts].sort((a, b) => b[1] - a[1]);
  return [
    h("h2", {}, item.label || "the whole graph"),
    h("p", { class: "path" }, `${units.whole(item.size)} nodes`),
    app.metric ? table([[app.metric.label, units[app.metric.unit](pane.amount(item))]]) : null,
    item.parent ? h("button", { class: "wide", onclick: () => pane.toggle(item.id) }, pane.tree.opened.has(item.id) ? "Collapse" : "Expand") : null,
    part("Operators", table(ops.slice(0, 24).map(([op, number]) => [op, units.whole(number)]))),
  ];
}

export function stepFacts(app, program, step) {
  const spent = duration(program, step);
  const total = program.steps.reduce((sum, at) => sum + duration(program, at), 0);
  return table([
    [program.measured ? "time, one thread" : "time, as planned", step.kernel ? `${units.seconds(spent)} (${units.percent(spent, total)})` : null],
    ["operations", step.operations ? units.count(step.operations, "FLOP") : null],
    ["a second", step.operations && spent ? units.count(step.operations / spent, "FLOP/s") : null],
    ["bytes of buffers", units.bytes(step.bytes)],
    ["estimated cycles", step.cycles ? units.count(step.cycles) : null],
    ["planned for", step.nanoseconds ? units.seconds(step.nanoseconds / 1e9) : null],
    ...(step.kernel?.shape ?? []),
  ]);
}

function decision({ what, chosen, costs }) {
  const ordered = Object.entries(costs).sort((a, b) => a[1] - b[1]);
  const most = Math.max(...ordered.slice(0, 8).map(([, cost]) => cost), 1e-12);
  return h("div", { class: "decision" }, h("h4", {}, what, h("span", { class: "quiet" }, ` ${ordered.length} ways, least cost first`)),
    h("ol", {}, ordered.slice(0, 8).map(([way, cost]) => h("li", { class: way === chosen ? "chosen" : "" }, h("span", { class: "way" }, way), h("span", { class: "cost", style: { "--share": `${(100 * cost) / most}%` } }, cost >= 100 ? cost.toFixed(0) : cost.toPrecision(3))))));
}

function buffers(program, step) {
  return h("table", { class: "rows" }, h("thead", {}, h("tr", {}, ["", "what", "where", "bytes", "elements"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, step.buffers.map((buffer) => {
      const slot = program.slots[buffer.slot];
      const where = slot.role === "arena" ? `${units.whole(slot.offset + buffer.offset)} in the arena` : `${slot.name}${buffer.offset ? ` + ${units.whole(buffer.offset)}` : ""}`;
      return h("tr", {}, h("td", {}, buffer.written ? "writes" : "reads"), h("td", {}, slot.role), h("td", {}, where), h("td", { class: "number" }, units.bytes(buffer.size)), h("td", {}, buffer.text));
    })));
}

/** Source nodes, loops, LLVM IR and assembly of a step, side by side. */
export function codeView(app, program, number) {
  const step = program.steps[number];
  const columns = h("div", { class: "columns" });
  const column = (title, id, ...children) => h("section", { class: `column ${id}`, "aria-label": title }, h("h3", {}, title), ...children);
  const source = column("Source nodes", "sources",
    h("ul", { class: "links" }, [...new Set(step.sources)].map((key) => h("li", {}, h("button", { class: "link", onclick: () => app.gotoName(program, key) }, program.names[key])))),
    h("h4", {}, "Operators"), h("p", {}, step.operators.join(", ")),
    [...step.decisions, ...(step.kernel?.decisions ?? [])].map(decision),
    h("h4", {}, "Facts"), stepFacts(app, program, step),
    h("h4", {}, "Buffers"), buffers(program, step));
  columns.append(source);
  if (step.kernel) {
    for (const [title, id, text] of [["Loop IR", "loops", step.kernel.loops], ["LLVM IR", "llvm", step.kernel.llvm], ["Assembly", "assembly", step.kernel.assembly]]) {
      const code = h("pre", { tabindex: 0, "aria-label": title }, "…");
      app.data.text(text).then((content) => { code.textContent = content || "there is none"; }, (error) => { code.textContent = `cannot be read: ${error}`; });
      columns.append(column(title, id, code));
    }
  } else columns.append(column("Code", "loops", h("p", {}, "This step runs on the host, between runs of kernels: it has no code of its own.")));
  const place = h("section", { class: "column place", "aria-label": "Place in memory" }, h("h3", {}, "Place in the arena over time"));
  requestAnimationFrame(() => place.append(memory(program, Math.max(280, place.clientWidth - 24), { step: number })));
  columns.append(place);
  return columns;
}
