// The stream of events. As a SharedWorker, one stream serves all tabs; without SharedWorker a page calls `openEvents`.

const silenceMax = 15_000;
const waitMax = 30_000;

// Calls `relay` with {type, data} for each event, and with {type: 'failed'} when a connection fails.
// Returns the function that ends the stream.
export function openEvents(relay) {
  let source, silence, retry;
  let wait = 1000;

  function connect() {
    source?.close();
    source = new EventSource('/api/events');
    for (const type of ['changed', 'beat', 'ended']) {
      source.addEventListener(type, (event) => {
        wait = 1000;
        listen();
        relay({ type, data: parse(event.data) });
      });
    }
    source.onerror = () => {
      relay({ type: 'failed' });
      reconnect();
    };
    listen();
  }

  // A dead network closes no connection: without beats, connect again.
  function listen() {
    clearTimeout(silence);
    silence = setTimeout(reconnect, silenceMax);
  }

  function reconnect() {
    stop();
    retry = setTimeout(connect, wait);
    wait = Math.min(wait * 2, waitMax);
  }

  function stop() {
    source?.close();
    clearTimeout(silence);
    clearTimeout(retry);
  }

  connect();
  return stop;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

// Pages send 'open', 'leave' and 'signOut'.
if ('SharedWorkerGlobalScope' in self) {
  const ports = new Set();
  let stop, lastBeat;

  const relay = (message) => {
    if (message.type === 'beat') lastBeat = message;
    if (message.type === 'failed') lastBeat = undefined;
    for (const port of ports) port.postMessage(message);
    if (message.type === 'ended') close();
  };

  const close = () => {
    stop?.();
    stop = lastBeat = undefined;
    ports.clear();
  };

  self.onconnect = (event) => {
    const port = event.ports[0];
    port.onmessage = ({ data }) => {
      if (data === 'open') {
        ports.add(port);
        if (lastBeat) port.postMessage(lastBeat);
        stop ??= openEvents(relay);
      } else {
        ports.delete(port);
        if (data === 'signOut') relay({ type: 'ended', data: { code: 'signedOut', message: '' } });
        else if (ports.size === 0) close();
      }
    };
  };
}
