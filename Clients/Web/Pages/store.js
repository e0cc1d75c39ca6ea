// Values that several components share, and hooks for state.

import { useEffect, useReducer, useRef, useState } from './preact.js';

export function createStore(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      value = next;
      for (const listener of [...listeners]) listener();
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export function useStore(store) {
  const update = useUpdate();
  useEffect(() => store.subscribe(update), [store]);
  return store.get();
}

export function useUpdate() {
  return useReducer((count) => count + 1, 0)[1];
}

function useMedia(query) {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const update = () => setMatches(list.matches);
    list.addEventListener('change', update);
    return () => list.removeEventListener('change', update);
  }, [query]);
  return matches;
}

export const useIsNarrow = () => useMedia('(max-width: 799px)');

// An action of a person: {run, isBusy, error}. A second start while it runs is ignored.
export function useAction(action) {
  const [state, setState] = useState({ isBusy: false });
  const isMounted = useRef(true);
  useEffect(() => () => void (isMounted.current = false), []);
  async function run(...values) {
    if (state.isBusy) return;
    setState({ isBusy: true });
    let error;
    try {
      await action(...values);
    } catch (thrown) {
      error = thrown;
    }
    if (isMounted.current) setState({ isBusy: false, error });
  }
  return { run, ...state, setError: (error) => setState({ isBusy: false, error }) };
}
