// Bundles the console: node console/build.mjs FOLDER. Names have hashes, so that a browser may keep each file for ever.
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
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
