// Compares the syntax trees of scripts with those of their squeezed forms, without places.
const { parse } = require('internal/deps/acorn/acorn/dist/acorn');
const { readFileSync } = require('fs');
const [dir, n] = process.argv.slice(2);
const tree = file => {
  const o = { ecmaVersion: 'latest', sourceType: 'module', allowReturnOutsideFunction: true };
  return JSON.stringify(parse(readFileSync(file, 'utf8'), o), (k, v) => k === 'start' || k === 'end' ? undefined : typeof v === 'bigint' ? `${v}n` : v);
};
for (let i = 0; i < n; i++) {
  if (tree(`${dir}/${i}.long`) !== tree(`${dir}/${i}.short`)) { console.error(`script ${i} has another meaning`); process.exitCode = 1; }
}
