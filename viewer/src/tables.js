// The steps of a program as a table, and two programs compared.
import { h } from "./dom.js";
import { duration } from "./plots.js";
import * as units from "./units.js";

const ROWS = 250; // that are shown; sorting brings others to the top

const COLUMNS = [
  ["step", (step) => step.index, (step) => step.index + 1],
  ["kernel", (step) => step.name, (step) => step.name],
  ["time", (step, program) => duration(program, step), (step, program) => units.seconds(duration(program, step))],
  ["share", (step, program) => duration(program, step), (step, program, total) => units.percent(duration(program, step), total)],
  ["FLOP", (step) => step.operations, (step) => (step.operations ? units.count(step.operations) : "–")],
  ["FLOP/s", (step, program) => step.operations / (duration(program, step) || Infinity), (step, program) => (step.operations && duration(program, step) ? units.count(step.operations / duration(program, step)) : "–")],
  ["bytes", (step) => step.bytes, (step) => units.bytes(step.bytes)],
  ["cycles", (step) => step.cycles, (step) => (step.cycles ? units.count(step.cycles) : "–")],
  ["turns", (step) => step.turns, (step) => units.whole(step.turns)],
];

export function stepTable(app, program) {
  const order = { column: 0, down: false };
  const total = program.steps.reduce((sum, step) => sum + duration(program, step), 0);
  const body = h("tbody");
  const heads = COLUMNS.map(([name], index) => h("th", { scope: "col", "aria-sort": "none", class: index === 1 ? null : "number" }, h("button", { onclick: () => sort(index) }, name)));
  const sort = (index) => {
    order.down = order.column === index ? !order.down : index > 1;
    order.column = index;
    heads.forEach((head, i) => head.setAttribute("aria-sort", i === index ? (order.down ? "descending" : "ascending") : "none"));
    fill();
  };
  const fill = () => {
    const key = COLUMNS[order.column][1];
    const sorted = [...program.steps].sort((a, b) => {
      const [x, y] = [key(a, program), key(b, program)];
      return (x < y ? -1 : x > y ? 1 : a.index - b.index) * (order.down ? -1 : 1);
    });
    body.replaceChildren(...sorted.slice(0, ROWS).map((step) => h("tr", { onclick: () => app.openStep(program, step.index) }, COLUMNS.map(([name, , show], i) => h("td", { class: i === 1 ? "name" : "number" }, i === 1 ? h("button", { class: "link" }, show(step, program, total)) : String(show(step, program, total)))))));
  };
  fill();
  return h("div", { class: "scroll" }, h("table", { class: "rows steps" }, h("thead", {}, h("tr", {}, heads)), body), program.steps.length > ROWS ? h("p", { class: "quiet" }, `the first ${ROWS} of ${units.whole(program.steps.length)}`) : null);
}

const totals = (program) => ({
  nodes: program.graph(0).nodes.filter((node) => node.op !== "variable").length,
  steps: program.steps.length,
  pieces: program.kernels.length,
  time: program.steps.reduce((sum, step) => sum + duration(program, step), 0),
  operations: program.steps.reduce((sum, step) => sum + step.operations, 0),
  moved: program.steps.reduce((sum, step) => sum + step.bytes, 0),
});

/** What two programs have of everything, and the operators that one has more of. */
export function comparison(a, b) {
  const [x, y] = [totals(a), totals(b)];
  const rows = [
    ["operators of the model", x.nodes, y.nodes, units.whole],
    ["steps", x.steps, y.steps, units.whole],
    ["distinct kernels", x.pieces, y.pieces, units.whole],
    [a.measured && b.measured ? "time of the steps, one thread" : "time of the steps, as planned", x.time, y.time, units.seconds],
    ["operations", x.operations, y.operations, (value) => units.count(value, "FLOP")],
    ["bytes of buffers", x.moved, y.moved, units.bytes],
    ["arena", a.arena_bytes, b.arena_bytes, units.bytes],
    ["constants", a.constant_bytes, b.constant_bytes, units.bytes],
    ["code", a.code_bytes, b.code_bytes, units.bytes],
  ];
  const change = (from, to) => (from === to ? "=" : from ? `${to > from ? "+" : "−"}${Math.abs((100 * (to - from)) / from).toFixed(1)} %` : "new");
  const head = (...names) => h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name))));
  const counted = (program) => {
    const counts = new Map();
    for (const node of program.graph(0).nodes) if (node.op !== "variable") counts.set(node.op, (counts.get(node.op) ?? 0) + 1);
    return counts;
  };
  const [p, q] = [counted(a), counted(b)];
  const ops = [...new Set([...p.keys(), ...q.keys()])].map((op) => [op, p.get(op) ?? 0, q.get(op) ?? 0]).sort((u, v) => Math.abs(v[1] - v[2]) - Math.abs(u[1] - u[2]) || v[1] - u[1]);
  return h("div", { class: "compared" },
    h("table", { class: "rows" }, head("", a.title, b.title, "change"), h("tbody", {}, rows.map(([name, from, to, show]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, show(from)), h("td", { class: "number" }, show(to)), h("td", { class: "number" }, change(from, to)))))),
    h("table", { class: "rows" }, head("operator", a.title, b.title, "more"), h("tbody", {}, ops.slice(0, 40).map(([op, from, to]) => h("tr", { class: from === to ? "same" : "" }, h("th", { scope: "row" }, op), h("td", { class: "number" }, from), h("td", { class: "number" }, to), h("td", { class: "number" }, to === from ? "" : `${to > from ? "+" : "−"}${Math.abs(to - from)}`))))));
}
