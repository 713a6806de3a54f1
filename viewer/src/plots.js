// Memory over the steps of a run, the steps over time, and the roofline: each a function of a program and a width.
import { h, s } from "./dom.js";
import { family } from "./pane.js";
import * as units from "./units.js";

const LEFT = 64;

function plot(width, height, label, ...children) {
  return s("svg", { class: "plot", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...children);
}

function ticks(most, wanted = 5) {
  if (!(most > 0)) return [0];
  const raw = most / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, i) => i * step);
}

/** The same of bytes: a power of two each. */
function byteTicks(most, wanted = 5) {
  const step = 2 ** Math.ceil(Math.log2(Math.max(most, 1) / wanted));
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

const grid = (x1, y1, x2, y2) => s("line", { class: "grid", x1, y1, x2, y2 });
const text = (x, y, anchor, value, more = {}) => s("text", { class: "tick", x, y, "text-anchor": anchor, ...more }, value);

const MANY = 4000;

/** Of very many marks those that can be told apart: no two of the same half pixels, unless one is chosen. */
function distinct(marks) {
  if (marks.length <= MANY) return marks;
  const seen = new Set();
  return marks.filter(({ spot, chosen }) => {
    const key = spot.map((number) => Math.round(2 * number)).join();
    if (seen.has(key) && !chosen) return false;
    seen.add(key);
    return true;
  });
}

/** Every value of the arena as a box: the steps in which it is alive, and the bytes that it has. */
export function memory(program, width, { step = null, onslot = () => {} } = {}) {
  const height = 360;
  const inner = { x: LEFT, y: 14, w: width - LEFT - 14, h: height - 54 };
  const steps = Math.max(program.steps.length, 1);
  const most = Math.max(program.arena_bytes, 1);
  const x = (at) => inner.x + (at / steps) * inner.w;
  const y = (at) => inner.y + inner.h - (at / most) * inner.h;
  const used = new Set(step === null ? [] : program.steps[step].buffers.map((buffer) => buffer.slot));
  const marks = program.slots.filter((slot) => slot.role === "arena").map((slot) => ({ slot, chosen: used.has(slot.index), spot: [x(slot.first), y(slot.offset + slot.size), Math.max(1, x(slot.last + 1) - x(slot.first) - 0.5), Math.max(1, y(slot.offset) - y(slot.offset + slot.size) - 0.5)] }));
  const boxes = distinct(marks).map(({ slot, chosen, spot: [left, top, wide, high] }) => {
    const writer = program.steps[slot.first];
    const told = `${units.bytes(slot.size)} at ${units.bytes(slot.offset)}, steps ${slot.first + 1} to ${slot.last + 1}, written by ${writer?.name ?? "?"}`;
    return s("rect", { class: `slot ${chosen ? "used" : ""} ${family(writer?.operators[0] ?? "")}`, x: left, y: top, width: wide, height: high, rx: 1.5, onclick: () => onslot(slot) }, s("title", {}, told));
  });
  const now = step === null ? [] : [s("rect", { class: "now", x: x(step), y: inner.y, width: Math.max(2, inner.w / steps), height: inner.h })];
  return plot(width, height, `memory of ${program.title} over its steps`,
    byteTicks(most).map((at) => [grid(inner.x, y(at), inner.x + inner.w, y(at)), text(inner.x - 8, y(at) + 4, "end", units.bytes(at))]),
    ticks(steps).map((at) => text(x(at), height - 24, "middle", units.whole(at))),
    text(inner.x + inner.w / 2, height - 6, "middle", "step"), boxes, now);
}

/** Bytes of the arena that are alive at each step, as a line. */
export function living(program, width) {
  const height = 138;
  const inner = { x: LEFT, y: 18, w: width - LEFT - 14, h: height - 42 };
  const changes = new Float64Array(program.steps.length + 2);
  for (const slot of program.slots)
    if (slot.role === "arena") { changes[slot.first] += slot.size; changes[slot.last + 1] -= slot.size; }
  let now = 0;
  const alive = Array.from(changes.subarray(0, program.steps.length), (change) => (now += change));
  const most = Math.max(program.arena_bytes, ...alive, 1);
  const x = (at) => inner.x + (at / Math.max(alive.length, 1)) * inner.w;
  const y = (at) => inner.y + inner.h - (at / most) * inner.h;
  const d = alive.map((value, i) => `${i ? "L" : "M"}${x(i)} ${y(value)}L${x(i + 1)} ${y(value)}`).join("");
  return plot(width, height, `bytes of ${program.title} that are alive at each step`,
    byteTicks(most, 3).map((at) => [grid(inner.x, y(at), inner.x + inner.w, y(at)), text(inner.x - 8, y(at) + 4, "end", units.bytes(at))]),
    s("path", { class: "area", d: alive.length ? `${d}L${x(alive.length)} ${y(0)}L${x(0)} ${y(0)}Z` : "" }),
    s("line", { class: "peak", x1: inner.x, x2: inner.x + inner.w, y1: y(program.arena_bytes), y2: y(program.arena_bytes) }),
    text(inner.x + inner.w, y(program.arena_bytes) - 5, "end", `arena ${units.bytes(program.arena_bytes)}`),
    text(inner.x + inner.w / 2, height - 4, "middle", "step"));
}

/** What a step takes: measured, or what the plan reckons with. */
export const duration = (program, step) => (program.measured ? step.seconds ?? 0 : step.nanoseconds / 1e9);

const kind = (at) => (at.kernel ? family(at.operators.find((op) => ["product", "reduce"].includes(family(op))) ?? at.operators[0] ?? "") : "host");

const ROWS = [["product", "products"], ["reduce", "reductions"], ["move", "moves"], ["plain", "element-wise"], ["host", "host"]];

/** The steps one after the other, a row for each kind of work. */
export function timeline(program, width, { step = null, onstep = () => {} } = {}) {
  const row = 34;
  const rows = ROWS.filter(([name]) => program.steps.some((at) => kind(at) === name));
  const height = 40 + row * rows.length;
  const inner = { x: 92, w: width - 92 - 14 };
  const total = program.steps.reduce((sum, at) => sum + duration(program, at), 0) || 1e-12;
  const x = (at) => inner.x + (at / total) * inner.w;
  let now = 0;
  const marks = program.steps.map((at) => {
    const [start, spent] = [now, duration(program, at)];
    now += spent;
    const line = rows.findIndex(([name]) => name === kind(at));
    return { at, spent, chosen: at.index === step, spot: [x(start), 8 + row * line, Math.max(0.8, x(start + spent) - x(start) - 0.3)] };
  });
  const bars = distinct(marks).map(({ at, spent, chosen, spot: [left, top, wide] }) => {
    return s("rect", { class: `bar ${kind(at)} ${chosen ? "used" : ""}`, x: left, y: top, width: wide, height: row - 10, rx: 2, "data-step": at.index, onclick: () => onstep(at.index) }, s("title", {}, `${at.index + 1}: ${at.name}, ${units.seconds(spent)}`));
  });
  return plot(width, height, `steps of ${program.title} over time`,
    rows.map(([, label], i) => [grid(inner.x, 8 + row * i + row - 6, inner.x + inner.w, 8 + row * i + row - 6), text(inner.x - 8, 8 + row * i + 17, "end", label)]),
    ticks(total).map((at) => [grid(x(at), 4, x(at), height - 26), text(x(at), height - 10, "middle", units.seconds(at))]), bars);
}

/** What each thread did in one run: a row for each. */
export function lanes(program, width, { step = null, onstep = () => {} } = {}) {
  const row = 30;
  const threads = [...new Set(program.pieces.map(([, thread]) => thread))].sort((a, b) => a - b);
  const height = 36 + row * threads.length;
  const inner = { x: 92, w: width - 92 - 14 };
  const total = Math.max(...program.pieces.map(([, , began, spent]) => began + spent), 1e-12);
  const x = (at) => inner.x + (at / total) * inner.w;
  const marks = program.pieces.map(([number, thread, began, spent]) => ({ number, thread, spent, chosen: number === step, spot: [x(began), 6 + row * threads.indexOf(thread), Math.max(0.5, x(began + spent) - x(began) - 0.2)] }));
  const bars = distinct(marks).map(({ number, thread, spent, chosen, spot: [left, top, wide] }) => {
    const at = program.steps[number];
    return s("rect", { class: `piece ${kind(at)} ${chosen ? "used" : ""}`, x: left, y: top, width: wide, height: row - 8, rx: 1, "data-step": number, onclick: () => onstep(number) }, s("title", {}, `${number + 1}: ${at.name}, thread ${thread}, ${units.seconds(spent)}`));
  });
  return plot(width, height, `threads of ${program.title} over time`,
    threads.map((thread, i) => [grid(inner.x, 6 + row * i + row - 5, inner.x + inner.w, 6 + row * i + row - 5), text(inner.x - 8, 6 + row * i + 15, "end", `thread ${thread}`)]),
    ticks(total).map((at) => [grid(x(at), 2, x(at), height - 24), text(x(at), height - 8, "middle", units.seconds(at))]), bars);
}

/** Operations a second over operations a byte, below what one core can do. */
export function roofline(program, width, { step = null, onstep = () => {} } = {}) {
  const height = 380;
  const inner = { x: LEFT, y: 14, w: width - LEFT - 16, h: height - 62 };
  const points = program.steps
    .map((at) => ({ at, time: duration(program, at) }))
    .filter(({ at, time }) => at.operations > 0 && at.bytes > 0 && time > 0)
    .map(({ at, time }) => ({ at, x: at.operations / at.bytes, y: at.operations / time, time }));
  if (!points.length) return h("p", { class: "quiet" }, "No step of this program has operations on floats.");
  const { rates } = program;
  const span = (values, low, high) => [Math.floor(Math.log10(Math.min(...values, low))), Math.ceil(Math.log10(Math.max(...values, high)))];
  const [x0, x1] = span(points.map((p) => p.x), 0.1, 100);
  const [y0, y1] = span(points.map((p) => p.y), 1e9, (rates.flops ?? 1e11) * 1.2);
  const x = (value) => inner.x + ((Math.log10(value) - x0) / (x1 - x0)) * inner.w;
  const y = (value) => inner.y + inner.h - ((Math.log10(value) - y0) / (y1 - y0)) * inner.h;
  const powers = (a, b) => Array.from({ length: b - a + 1 }, (_, i) => 10 ** (a + i));
  const longest = Math.max(...points.map((p) => p.time));
  const roof = (rate, label) => {
    const [from, to] = [Math.max(10 ** x0, 10 ** y0 / rate), rates.flops / rate];
    if (!rate || to <= from) return null;
    const [ax, ay, bx, by] = [x(from), y(from * rate), x(to), y(rates.flops)];
    const turned = `translate(${ax + (bx - ax) * 0.06} ${ay + (by - ay) * 0.06}) rotate(${(Math.atan2(by - ay, bx - ax) * 180) / Math.PI})`;
    return [s("line", { class: "roof", x1: ax, y1: ay, x2: bx, y2: by }), text(0, -6, "start", `${label} ${units.count(rate, "B/s")}`, { class: "roof-name", transform: turned })];
  };
  const clip = `clip-${program.number}`;
  return plot(width, height, `roofline of ${program.title}`,
    s("clipPath", { id: clip }, s("rect", { x: inner.x, y: inner.y, width: inner.w, height: inner.h })),
    powers(x0, x1).map((at) => [grid(x(at), inner.y, x(at), inner.y + inner.h), text(x(at), height - 32, "middle", units.count(at))]),
    powers(y0, y1).map((at) => [grid(inner.x, y(at), inner.x + inner.w, y(at)), text(inner.x - 8, y(at) + 4, "end", units.count(at))]),
    text(inner.x + inner.w / 2, height - 10, "middle", "operations for a byte of its buffers"),
    text(inner.x + 4, inner.y + 10, "start", "operations a second"),
    s("g", { "clip-path": `url(#${clip})` }, rates.flops ? [
      s("line", { class: "roof", x1: x(rates.flops / rates.near), y1: y(rates.flops), x2: x(10 ** x1), y2: y(rates.flops) }),
      text(x(10 ** x1) - 6, y(rates.flops) - 14, "end", `one core ${units.count(rates.flops, "FLOP/s")}`, { class: "roof-name" }),
      roof(rates.near, "second cache"), roof(rates.far, "memory")] : null),
    distinct(points.map((p) => ({ p, chosen: p.at.index === step, spot: [x(p.x), y(p.y), 3.5 + 6 * Math.sqrt(p.time / longest)] }))).map(({ p, chosen, spot: [cx, cy, r] }) => s("circle", { class: `dot ${family(p.at.operators.find((op) => family(op) === "product") ?? p.at.operators[0] ?? "")} ${chosen ? "used" : ""}`, cx, cy, r, "data-step": p.at.index, onclick: () => onstep(p.at.index) }, s("title", {}, `${p.at.index + 1}: ${p.at.name}\n${units.count(p.y, "FLOP/s")}, ${p.x.toFixed(2)} operations for a byte, ${units.seconds(p.time)}`))));
}
