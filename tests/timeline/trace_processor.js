// Perfetto's own trace_processor (WebAssembly), with its RPC over stdin and stdout: node FILE ENGINE_FOLDER.
const fs = require('fs');
const path = require('path');
const { stdin, exit } = process;
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
// It is made for a worker of a browser.
globalThis.WorkerGlobalScope = Object;
globalThis.importScripts = () => {};
globalThis.window = undefined;
const content = (url) => fs.readFileSync(path.join(folder, path.basename(String(url))));
globalThis.XMLHttpRequest = class {
  open(_method, url) {
    this.url = url;
  }

  send() {
    const bytes = content(this.url);
    this.status = 200;
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    if (this.onload) this.onload();
  }
};
globalThis.fetch = async (url) =>
  new Response(content(url), { headers: { 'Content-Type': 'application/wasm' } });
console.log = console.error;
console.info = console.error;

// The bridge says to nobody when it is ready: it is when it has room for requests.
const source = fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8');
globalThis.process = undefined;
(0, eval)(source.replace('const t=new e.WasmBridge', 'const t=globalThis.bridge=new e.WasmBridge'));
globalThis.onmessage({ data: port });

let held = Buffer.alloc(0);
function read() {
  stdin.on('data', (piece) => {
    held = Buffer.concat([held, piece]);
    while (held.length >= 4 && held.length >= 4 + held.readUInt32LE(0)) {
      const size = held.readUInt32LE(0);
      toEngine({ data: new Uint8Array(held.subarray(4, 4 + size)) });
      held = held.subarray(4 + size);
    }
  });
  stdin.on('end', () => exit(0));
}

const ready = setInterval(() => {
  if (globalThis.bridge.reqBufferAddr) {
    clearInterval(ready);
    read();
  }
}, 5);
