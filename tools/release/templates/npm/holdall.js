#!/usr/bin/env node
// Runs the holdall of this machine's package.
"use strict";
const { spawnSync } = require("child_process");

const name = `@holdall/${process.platform}-${process.arch}`;
let command;
try {
  command = require.resolve(`${name}/bin/holdall${process.platform === "win32" ? ".exe" : ""}`);
} catch {
  console.error(`holdall: ${name} is not installed: expected it beside this package, if there is one for this machine`);
  process.exit(2);
}
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => {}); // the command answers them
const ran = spawnSync(command, process.argv.slice(2), { stdio: "inherit" });
if (ran.error) {
  console.error(`holdall: ${ran.error.message}`);
  process.exit(2);
}
process.exit(ran.status ?? 130);
