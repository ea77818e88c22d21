// Perfetto's own trace_processor (WebAssembly), with its RPC over stdin and stdout: node FILE ENGINE_FOLDER.
const fs = require('fs');
const path = require('path');
const folder = process.argv[2];

let toEngine = null;
const port = {
  set onmessage(handler) { toEngine = handler; },
  postMessage(data) {
    const bytes = data instanceof Uint8Array ? data : new Uint8Array(data);
    let at = 0;
    while (at < bytes.length) at += fs.writeSync(1, bytes, at);
  },
};

globalThis.self = globalThis;
globalThis.location = { href: 'file://' + folder + '/engine_bundle.js', pathname: folder + '/' };
globalThis.importScripts = () => {};
globalThis.window = undefined;
globalThis.XMLHttpRequest = undefined;
globalThis.fetch = async (url) => {
  const name = path.join(folder, path.basename(String(url)));
  return new Response(fs.readFileSync(name), { headers: { 'Content-Type': 'application/wasm' } });
};
console.log = console.error;
console.info = console.error;

eval.call(globalThis, fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'));
(globalThis.onmessage || self.onmessage)({ data: port, ports: [port] });

let held = Buffer.alloc(0);
process.stdin.on('data', (piece) => {
  held = Buffer.concat([held, piece]);
  while (held.length >= 4 && held.length >= 4 + held.readUInt32LE(0)) {
    const size = held.readUInt32LE(0);
    toEngine({ data: new Uint8Array(held.subarray(4, 4 + size)) });
    held = held.subarray(4 + size);
  }
});
process.stdin.on('end', () => process.exit(0));
