// Bundles src/ into one HTML file without data, which the Python package ships: weft/tools/viewer/page.html.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "weft", "tools", "viewer", "page.html");

// All that decides what is built. tests/tools/test_view_page.py computes the same and compares.
function sourceHash() {
  const hash = createHash("sha256");
  const files = ["build.mjs", "package-lock.json", ...readdirSync(join(here, "src")).sort().map((name) => `src/${name}`)];
  for (const name of files) hash.update(name).update("\0").update(readFileSync(join(here, name))).update("\0");
  return hash.digest("hex");
}

const made = await build({
  entryPoints: [join(here, "src", "main.js")],
  bundle: true,
  minify: true,
  write: false,
  format: "iife",
  target: ["chrome100", "firefox113", "safari16.4"],
  legalComments: "none",
});
const style = await build({ entryPoints: [join(here, "src", "style.css")], minify: true, write: false });
const licence = readFileSync(join(here, "node_modules", "@dagrejs", "dagre", "LICENSE"), "utf8").trim();
const script = made.outputFiles[0].text.trim().replaceAll("</script", "<\\/script");
const page = readFileSync(join(here, "src", "page.html"), "utf8")
  .replace("{{sources}}", () => sourceHash())
  .replace("{{licence}}", () => licence)
  .replace("{{style}}", () => style.outputFiles[0].text.trim())
  .replace("{{script}}", () => script);
writeFileSync(out, page);
console.log(`${out}: ${Math.round(page.length / 1024)} kB`);
