// A list of any length: only the rows in view are in the document. It is an ARIA grid; the focus stays on the grid, and
// aria-activedescendant names the active row.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from './preact.js';

const overscan = 8;
const typingPause = 700;

const rowHeightOf = (isNarrow) => (isNarrow ? 56 : 38);

// Selected ids and the active row, for the page and its grid.
export function useSelection(rows) {
  const [state, setState] = useState({ ids: new Set(), active: undefined, anchor: undefined });
  const indexes = useMemo(() => new Map(rows.map((row, index) => [row.id, index])), [rows]);
  const selected = useMemo(() => [...state.ids].filter((id) => indexes.has(id)), [state, indexes]);
  return {
    ...state,
    indexes,
    selected,
    set: (next) => setState((old) => ({ ...old, ...next })),
    clear: () => setState((old) => ({ ...old, ids: new Set() })),
  };
}

// Columns: {id, label, cell(row), canSort}. `place` names what is listed: another one begins at the top. `sort` is {id, isDescending}, or undefined while the order is the server's.
export function Grid({ label, rows, columns, isNarrow, selection, onOpen, onKey, sort, onSort, hasMore, onMore, name, place }) {
  const scroller = useRef();
  const [view, setView] = useState({ top: 0, height: 800 });
  const height = rowHeightOf(isNarrow);
  const headHeight = 34;
  const typed = useRef({ text: '', time: 0 });
  const activeIndex = selection.indexes.get(selection.active) ?? -1;

  const first = Math.max(0, Math.floor(view.top / height) - overscan);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / height) + overscan);

  useEffect(() => {
    const measure = () =>
      setView({ top: scroller.current.scrollTop, height: scroller.current.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(scroller.current);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    if (hasMore && last > rows.length - 100) onMore();
  }, [hasMore, last, rows]);

  // When rows come or go above, the first row in view stays where it is.
  const kept = useRef({});
  useLayoutEffect(() => {
    const { id, offset } = kept.current;
    const index = selection.indexes.get(id);
    if (index !== undefined && scroller.current.scrollTop > 0) scroller.current.scrollTop = index * height + offset;
  }, [rows, height]);
  useLayoutEffect(() => {
    scroller.current.scrollTop = 0;
  }, [place]);
  useLayoutEffect(() => {
    const top = scroller.current.scrollTop;
    const index = Math.floor(top / height);
    kept.current = { id: rows[index]?.id, offset: top - index * height };
  });

  const onScroll = () => setView({ top: scroller.current.scrollTop, height: scroller.current.clientHeight });

  function reveal(index) {
    const element = scroller.current;
    const top = index * height;
    const room = element.clientHeight - headHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height > element.scrollTop + room) element.scrollTop = top + height - room;
  }

  const range = (from, to) => new Set(rows.slice(Math.min(from, to), Math.max(from, to) + 1).map((row) => row.id));

  // Makes a row active. `mode`: 'one' selects it alone, 'range' from the anchor to it, 'toggle' adds or removes it,
  // 'move' selects nothing.
  function activate(index, mode) {
    const row = rows[index];
    if (!row) return;
    const next = { active: row.id, anchor: row.id };
    if (mode === 'one') next.ids = new Set([row.id]);
    if (mode === 'range') {
      next.anchor = selection.indexes.has(selection.anchor) ? selection.anchor : row.id;
      next.ids = range(selection.indexes.get(next.anchor), index);
    }
    if (mode === 'toggle') {
      next.ids = new Set(selection.ids);
      if (!next.ids.delete(row.id)) next.ids.add(row.id);
    }
    selection.set(next);
    reveal(index);
  }

  function onKeyDown(event) {
    if (event.target !== scroller.current) return;
    if (!handleKey(event) && !onKey?.(event)) return;
    event.preventDefault();
  }

  function handleKey(event) {
    const page = Math.max(1, Math.floor((scroller.current.clientHeight - headHeight) / height) - 1);
    const end = rows.length - 1;
    const moves = {
      ArrowDown: Math.min(activeIndex + 1, end),
      ArrowUp: Math.max(activeIndex - 1, 0),
      PageDown: Math.min(activeIndex + page, end),
      PageUp: Math.max(activeIndex - page, 0),
      Home: 0,
      End: end,
    };
    const hasControl = event.ctrlKey || event.metaKey;
    if (event.altKey) return false;
    if (event.key in moves) {
      activate(moves[event.key], event.shiftKey ? 'range' : hasControl ? 'move' : 'one');
    } else if (event.key === ' ' && Date.now() - typed.current.time >= typingPause) {
      activate(activeIndex, 'toggle');
    } else if (event.key === 'Enter' && rows[activeIndex]) {
      onOpen(rows[activeIndex]);
    } else if (event.key === 'Escape') {
      selection.clear();
    } else if (event.key.toLowerCase() === 'a' && hasControl) {
      selection.set({ ids: new Set(rows.map((row) => row.id)) });
    } else if (event.key.length === 1 && !hasControl) {
      findTyped(event.key);
    } else {
      return false;
    }
    return true;
  }

  // Typed letters go to the next row whose name begins with them.
  function findTyped(letter) {
    const now = Date.now();
    const text = (now - typed.current.time < typingPause ? typed.current.text : '') + letter.toLowerCase();
    typed.current = { text, time: now };
    const start = text.length > 1 ? Math.max(activeIndex, 0) : activeIndex + 1;
    for (let step = 0; step < rows.length; step++) {
      const index = (start + step) % rows.length;
      if (rows[index].name.toLowerCase().startsWith(text)) return activate(index, 'one');
    }
  }

  function onClick(event, index) {
    scroller.current.focus({ preventScroll: true });
    const isCheck = event.target.closest('.check');
    if (event.shiftKey) activate(index, 'range');
    else if (isCheck || event.ctrlKey || event.metaKey) activate(index, 'toggle');
    // Fingers have no double click: a tap opens.
    else if (event.pointerType === 'touch') onOpen(rows[index]);
    else activate(index, 'one');
  }

  function rowAt(index) {
    const row = rows[index];
    const isSelected = selection.ids.has(row.id);
    return html`
      <div role="row" key=${row.id} id=${`${name}-${row.id}`} aria-rowindex=${index + 2} aria-selected=${isSelected}
        class=${index === activeIndex ? 'row active' : 'row'} style=${{ transform: `translateY(${index * height}px)` }}
        onClick=${(event) => onClick(event, index)}
        onDblClick=${(event) => !event.target.closest('.check') && onOpen(row)}>
        <span role="gridcell" class="check"></span>
        ${columns.map((column) => html`<span role="gridcell" key=${column.id} class=${column.id}>${column.cell(row)}</span>`)}
      </div>`;
  }

  const shown = [];
  for (let index = first; index < last; index++) shown.push(rowAt(index));
  // The active row stays in the document, since aria-activedescendant names it.
  if (activeIndex >= 0 && (activeIndex < first || activeIndex >= last)) shown.push(rowAt(activeIndex));

  return html`
    <div role="grid" class="grid" ref=${scroller} tabindex="0" aria-label=${label} aria-multiselectable="true"
      aria-rowcount=${hasMore ? -1 : rows.length + 1} aria-colcount=${columns.length + 1}
      aria-activedescendant=${activeIndex >= 0 ? `${name}-${selection.active}` : undefined}
      onScroll=${onScroll} onKeyDown=${onKeyDown}>
      <div role="row" class="row head" aria-rowindex="1">
        <span role="columnheader" class="check"><span class="unseen">Selected</span></span>
        ${columns.map((column) => html`<${Head} key=${column.id} column=${column} sort=${sort} onSort=${onSort} />`)}
      </div>
      <div role="rowgroup" class="rows" style=${{ height: `${rows.length * height}px` }}>${shown}</div>
    </div>`;
}

function Head({ column, sort, onSort }) {
  const isSorted = sort?.id === column.id;
  const direction = sort?.isDescending ? 'descending' : 'ascending';
  const change = () => onSort({ id: column.id, isDescending: isSorted && !sort.isDescending });
  return html`
    <span role="columnheader" class=${column.id} aria-sort=${isSorted ? direction : undefined}>
      ${column.canSort && sort
        ? html`<button type="button" class="text" onClick=${change}>${column.label}${isSorted && (sort.isDescending ? ' ↓' : ' ↑')}</button>`
        : column.label}
    </span>`;
}
