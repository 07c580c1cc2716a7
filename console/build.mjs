// Bundles the console: node console/build.mjs FOLDER. Names have hashes, so that a browser may keep each file for ever.
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { basename, join } from "node:path";
import { build } from "esbuild";

const here = import.meta.dirname;
const root = join(here, "..");
const folder = process.argv[2];
if (!folder) throw new Error("Missing folder: node console/build.mjs FOLDER");

await rm(folder, { recursive: true, force: true });
await mkdir(folder, { recursive: true });
const { metafile } = await build({
  absWorkingDir: root,
  entryPoints: { console: join(here, "src/main.tsx") },
  outdir: folder,
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["chrome120", "firefox121", "safari17"],
  jsx: "automatic",
  minify: true,
  metafile: true,
  entryNames: "[name]-[hash]",
  chunkNames: "chunk-[hash]",
  legalComments: "none",
  charset: "utf8",
  define: { "process.env.NODE_ENV": '"production"' },
  logLevel: "warning",
});

const outputs = Object.entries(metafile.outputs);
const entry = outputs.find(([, output]) => output.entryPoint === "console/src/main.tsx");
if (!entry?.[1].cssBundle) throw new Error("The entry has no styles");
const page = await readFile(join(here, "index.html"), "utf8");
await writeFile(
  join(folder, "index.html"),
  page.replace("console.css", basename(entry[1].cssBundle)).replace("console.js", basename(entry[0])),
);
await writeFile(join(folder, "licenses.txt"), await licensesOf(Object.keys(metafile.inputs)));

const first = firstOf(entry[0]).map((path) => join(root, path));
const packed = await Promise.all(
  [...first, join(root, entry[1].cssBundle)].map(async (path) => gzipSync(await readFile(path))),
);
console.log(
  `${Math.round(packed.reduce((sum, { length }) => sum + length, 0) / 1000)} kB packed before the first page`,
);

/** The scripts that come with one, itself first. @param {string} path @returns {string[]} */
function firstOf(path, found = new Set([path])) {
  for (const { path: next, kind } of metafile.outputs[path]?.imports ?? []) {
    if (kind !== "import-statement" || found.has(next)) continue;
    found.add(next);
    firstOf(next, found);
  }
  return [...found];
}

/** The licences of all packages that are in the bundle. @param {string[]} inputs */
async function licensesOf(inputs) {
  const packages = new Set();
  for (const input of inputs) {
    const found = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (found) packages.add(join(root, found[1]));
  }
  const parts = [];
  for (const path of [...packages].sort()) {
    const { name, version, license } = JSON.parse(await readFile(join(path, "package.json"), "utf8"));
    const files = ["LICENSE", "LICENSE.md", "LICENSE.txt", "license"].map((file) => readFile(join(path, file), "utf8"));
    const text = await Promise.any(files).catch(() => `Licensed under ${license}.\n`);
    parts.push(`${name} ${version}\n\n${text.replaceAll("\r\n", "\n").trim()}\n`);
  }
  return parts.join(`\n${"-".repeat(80)}\n\n`);
}
