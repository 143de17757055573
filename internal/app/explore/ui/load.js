// Loads the style and the script of a page without a holdall server from one file that gzip has
// compressed. Some servers let the browser decompress it. The policy allows no other text.
(async () => {
  const root = document.documentElement, name = document.currentScript.dataset.code;
  const parsed = new Promise(f => document.addEventListener('DOMContentLoaded', f));
  const add = (tag, text) => { const e = document.createElement(tag); e.textContent = text; document.head.append(e); return e; };
  root.hidden = true; // until it has a style
  try {
    const answer = await fetch(name);
    if (!answer.ok) throw new Error(`the server responds with status ${answer.status}`);
    /** @type {Blob | Response} */
    let file = await answer.blob();
    const head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
    if (head[0] === 0x1f && head[1] === 0x8b) {
      if (!self.DecompressionStream) throw new Error('it needs a newer browser');
      file = new Response(file.stream().pipeThrough(new DecompressionStream('gzip')));
    }
    const [style, script] = (await file.text()).split('\0');
    await parsed;
    if (add('style', style).sheet) add('script', script);
    if (document.body.dataset.ready === undefined) throw new Error('it is not the file that this page was written with, or the browser is too old');
  } catch (err) {
    await parsed;
    document.body.textContent = `${name} was not loaded: ${err.message}`;
  }
  root.hidden = false;
})();
