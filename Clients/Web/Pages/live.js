// Live events for the components: the connection's state, and "something changed".

import { useEffect, useRef, useState } from './preact.js';
import { call } from './api.js';
import { createStore } from './store.js';
import { openEvents } from './worker.js';

const beatsMissingMax = 12_000;

// isConnected: beats arrive. lastBeat: when the last one came, in ms.
export const liveState = createStore({ isConnected: false, lastBeat: 0 });

const listeners = new Set();
let send, onEnded, timer;

// Begins to listen. `ended` is called with {code, message} when the sign-in is over.
export function openLive(ended) {
  onEnded = ended;
  liveState.set({ isConnected: true, lastBeat: Date.now() });
  expectBeat();
  send ??= connectWorker() ?? connectAlone();
  send('open');
}

export function closeLive(isSignOut) {
  clearTimeout(timer);
  onEnded = undefined;
  send?.(isSignOut ? 'signOut' : 'leave');
}

function connectWorker() {
  if (!self.SharedWorker) return undefined;
  try {
    const worker = new SharedWorker('worker.js', { type: 'module', name: 'nephos-live' });
    worker.port.onmessage = ({ data }) => receive(data);
    // The browser has SharedWorker, but none of modules, or it forbids them here.
    worker.onerror = () => {
      send = connectAlone();
      send('open');
    };
    return (message) => worker.port.postMessage(message);
  } catch {
    return undefined;
  }
}

function connectAlone() {
  let stop;
  return (message) => {
    if (message === 'open') stop ??= openEvents(receive);
    else {
      stop?.();
      stop = undefined;
    }
  };
}

function expectBeat() {
  clearTimeout(timer);
  timer = setTimeout(() => liveState.set({ ...liveState.get(), isConnected: false }), beatsMissingMax);
}

function tellListeners() {
  for (const listener of [...listeners]) listener();
}

function receive({ type, data }) {
  if (!onEnded) return;
  if (type === 'beat') {
    liveState.set({ isConnected: true, lastBeat: Date.now() });
    expectBeat();
  } else if (type === 'changed') {
    tellListeners();
  } else if (type === 'ended') {
    onEnded(data);
  } else {
    // A stream may be refused because the sign-in is over. The call finds out.
    call('session').catch(() => {});
  }
}

addEventListener('pagehide', () => send?.('leave'));
addEventListener('pageshow', (event) => {
  if (event.persisted && onEnded) send?.('open');
});

// Runs `action` after each change. Changes during a run lead to one more run.
export function useChanged(action) {
  const latest = useRef();
  latest.current = action;
  useEffect(() => {
    let isRunning = false;
    let again = false;
    async function listener() {
      again = isRunning;
      if (isRunning) return;
      isRunning = true;
      try {
        await latest.current();
        // Not more than twice a second, however many changes arrive.
        await new Promise((resolve) => setTimeout(resolve, 500));
      } finally {
        isRunning = false;
        if (again && listeners.has(listener)) listener();
      }
    }
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
}

// Changes of the account itself raise no event: a page that was in the background asks again when it is shown.
addEventListener('visibilitychange', () => document.hidden || tellListeners());

// Loads data when `inputs` change, and again after each live change.
// Returns {data, error, reload, setData}; old data stays while new data loads.
export function useData(load, inputs) {
  const [state, setState] = useState({});
  const turn = useRef(0);
  async function reload() {
    const mine = ++turn.current;
    try {
      const data = await load();
      if (mine === turn.current) setState({ data });
    } catch (error) {
      if (mine === turn.current) setState((old) => ({ data: old.data, error }));
    }
  }
  useEffect(() => {
    setState({});
    reload();
    return () => void turn.current++;
  }, inputs);
  useChanged(reload);
  return { ...state, reload, setData: (data) => setState({ data }) };
}
