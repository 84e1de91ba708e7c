// Feeds requests to Perfetto's trace processor (WebAssembly) and prints its answers: node trace_processor.js FOLDER < REQUESTS > ANSWERS
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const folder = process.argv[2];
const requests = fs.readFileSync(0);
const answers = [];
const port = { onmessage: null, postMessage: (data) => answers.push(Buffer.from(data)) };
const node = process;

// What the bundle expects of a browser's worker; it takes another way where it sees node.
class XMLHttpRequest {
  open(_method, name) { this.name = name; }
  send() { this.response = fs.readFileSync(path.join(folder, path.basename(this.name))); }
}
const worker = { location: { href: 'file:///' } };
Object.assign(globalThis, { self: worker, WorkerGlobalScope: Object, importScripts: () => undefined, XMLHttpRequest, location: worker.location });
console.warn = () => undefined;
delete globalThis.process;
vm.runInThisContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), { filename: 'engine_bundle.js' });
globalThis.process = node;
worker.onmessage({ data: port });

setTimeout(() => {
  try {
    for (let at = 0; at < requests.length; at += 1 << 24) port.onmessage({ data: new Uint8Array(requests.subarray(at, at + (1 << 24))) });
    fs.writeSync(1, Buffer.concat(answers));
    node.exit(0);
  } catch (error) {
    node.stderr.write(String(error).slice(0, 2000));
    node.exit(1);
  }
}, 200);
