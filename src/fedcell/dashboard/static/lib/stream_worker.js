// The one stream of all tabs: a browser has six connections for a server, so each tab cannot have its own.

import { Stream } from "./stream.js";

const ports = new Set();
const stream = new Stream("../../api/events", (message) => ports.forEach((port) => port.postMessage(message)));

function hear(port, word) {
  if (word === "bye") ports.delete(port);
  else if (word === "hello") {
    ports.add(port);
    if (stream.state) port.postMessage(stream.state);
  }
  if (ports.size) stream.open();
  else stream.close();
}

self.onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => hear(port, data);
};
