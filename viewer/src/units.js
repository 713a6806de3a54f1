// Numbers as people read them.

function scaled(value, steps, unit) {
  if (!Number.isFinite(value)) return "–";
  let [factor, prefix] = steps[0];
  for (const [f, p] of steps) if (Math.abs(value) >= f) [factor, prefix] = [f, p];
  const number = value / factor;
  const digits = number >= 100 || Number.isInteger(number) ? 0 : number >= 10 ? 1 : 2;
  return `${number.toFixed(digits)} ${prefix}${unit}`.trim();
}

const DECIMAL = [[1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"]];
const BINARY = [[1, ""], [1024, "Ki"], [1024 ** 2, "Mi"], [1024 ** 3, "Gi"]];
const TIMES = [[1e-9, "n"], [1e-6, "µ"], [1e-3, "m"], [1, ""]];

export const bytes = (value) => scaled(value, BINARY, "B");
export const count = (value, unit = "") => scaled(value, DECIMAL, unit);
export const seconds = (value) => (value === 0 ? "0 s" : scaled(value, TIMES, "s"));
export const percent = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "–");
export const whole = (value) => value.toLocaleString("en-US").replaceAll(",", "\u202f");
