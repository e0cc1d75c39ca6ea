// Components that all pages share: toasts, fields, buttons, menus, tables.

import { html, useEffect, useRef, useState } from './preact.js';
import { sentence } from './api.js';
import { Icon } from './icons.js';
import { createStore, useStore } from './store.js';

// Toasts

const toasts = createStore([]);
let toastNumber = 0;

const closeToast = (number) => toasts.set(toasts.get().filter((toast) => toast.number !== number));

// `action` is {label, run}. Failures stay until they are closed.
export function showToast(text, { action, isFailure } = {}) {
  const number = ++toastNumber;
  toasts.set([...toasts.get().slice(-3), { number, text, action, isFailure }]);
  return number;
}

export const showFailure = (error) => showToast(sentence(error), { isFailure: true });

// Runs an action of a person; a failure is shown as a toast. Returns whether it succeeded.
export async function attempt(action) {
  try {
    await action();
    return true;
  } catch (error) {
    showFailure(error);
    return false;
  }
}

export function Toasts() {
  const list = useStore(toasts);
  return html`
    <div class="toasts" aria-live="polite">
      ${list.map((toast) => html`<${Toast} key=${toast.number} toast=${toast} />`)}
    </div>`;
}

function Toast({ toast }) {
  const [isHeld, setIsHeld] = useState(false);
  const former = useRef();
  const close = () => {
    closeToast(toast.number);
    // The focus goes back to where it came from.
    former.current?.focus();
  };
  useEffect(() => {
    if (toast.isFailure || isHeld) return undefined;
    const timer = setTimeout(close, toast.action ? 15_000 : 5000);
    return () => clearTimeout(timer);
  }, [isHeld]);
  const hold = (event) => {
    setIsHeld(true);
    if (event.type === 'focusin') former.current ??= event.relatedTarget;
  };
  const release = () => setIsHeld(false);
  const run = () => {
    close();
    attempt(toast.action.run);
  };
  return html`
    <div class=${toast.isFailure ? 'toast failure' : 'toast'} role=${toast.isFailure ? 'alert' : undefined}
      onMouseEnter=${hold} onMouseLeave=${release} onfocusin=${hold} onfocusout=${release}>
      <span>${toast.text}</span>
      ${toast.action && html`<button class="text" onClick=${run}>${toast.action.label}</button>`}
      <${IconButton} icon="close" label="Close" onClick=${close} />
    </div>`;
}

let fieldNumber = 0;

export function Field({ label, value, onValue, hint, inputRef, ...rest }) {
  const [id] = useState(() => `field-${++fieldNumber}`);
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      <input id=${id} ref=${inputRef} value=${value} onInput=${(event) => onValue(event.target.value)}
        aria-describedby=${hint && `${id}-hint`} autocomplete="off" ...${rest} />
      ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
    </div>`;
}

export function Failure({ error }) {
  return error && html`<p class="failure" role="alert">${sentence(error)}</p>`;
}

// A field that is checked or not; `value` is a boolean.
export function Check({ label, value, onValue }) {
  return html`
    <label class="check-field">
      <input type="checkbox" checked=${value} onChange=${(event) => onValue(event.target.checked)} /> ${label}
    </label>`;
}

// A page that lists rows, or says that there are none.
export function TablePage({ title, note, none, loaded, rowsOf, ...table }) {
  return html`
    <div class="page">
      <${Heading}>${title}<//>
      ${note && html`<p class="quiet">${note}</p>`}
      <${Loaded} ...${loaded}>
        ${(data) => (rowsOf(data).length ? html`<${Table} caption=${title} rows=${rowsOf(data)} ...${table} />` : html`<p class="empty">${none}</p>`)}
      <//>
    </div>`;
}

export function IconButton({ icon, label, ...rest }) {
  return html`<button type="button" class="bare" aria-label=${label} title=${label} ...${rest}><${Icon} name=${icon} /></button>`;
}

export function CopyButton({ text, label = 'Copy', name }) {
  const [state, setState] = useState(label);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setState('Copied');
    } catch {
      setState('Select the text to copy it');
    }
  };
  return html`<button type="button" aria-label=${name && `${state} ${name}`} onClick=${copy}><span aria-live="polite">${state}</span></button>`;
}

// A page's heading; it gets the focus when the page changes.
export function Heading({ children, actions }) {
  const element = useRef();
  useEffect(() => {
    if (document.activeElement === document.body) element.current.focus();
  }, []);
  return html`<div class="heading"><h1 ref=${element} tabindex="-1">${children}</h1>${actions}</div>`;
}

// The result of useData: its content, "Loading", or the failure.
export function Loaded({ data, error, reload, children }) {
  if (data) return html`<${Failure} error=${error} />${children(data)}`;
  if (!error) return html`<p class="quiet" role="status">Loading</p>`;
  return html`<${Failure} error=${error} /><button onClick=${reload}>Try again</button>`;
}

// A button that opens a list of actions: [{label, run, isDisabled}].
export function Menu({ label, actions }) {
  const [isOpen, setIsOpen] = useState(false);
  const element = useRef();
  const items = () => [...element.current.querySelectorAll('[role=menuitem]:not([disabled])')];
  useEffect(() => {
    if (!isOpen) return undefined;
    items()[0]?.focus();
    const onOutside = (event) => !element.current.contains(event.target) && setIsOpen(false);
    addEventListener('pointerdown', onOutside);
    return () => removeEventListener('pointerdown', onOutside);
  }, [isOpen]);
  const close = () => {
    setIsOpen(false);
    element.current.querySelector('button').focus();
  };
  const onKeyDown = (event) => {
    if (!isOpen) return;
    const list = items();
    const at = list.indexOf(document.activeElement);
    if (event.key === 'Escape') close();
    else if (event.key === 'Tab') setIsOpen(false);
    else if (event.key === 'ArrowDown') list[(at + 1) % list.length]?.focus();
    else if (event.key === 'ArrowUp') list.at(at - 1)?.focus();
    else return;
    if (event.key !== 'Tab') event.preventDefault();
  };
  const choose = (action) => {
    close();
    action.run();
  };
  return html`
    <div class="menu" ref=${element} onKeyDown=${onKeyDown}>
      <button type="button" aria-haspopup="menu" aria-expanded=${isOpen} onClick=${() => setIsOpen(!isOpen)}>${label}</button>
      ${isOpen && html`
        <div role="menu" aria-label=${label}>
          ${actions.map((action) => html`
            <button type="button" role="menuitem" tabindex="-1" class=${action.isDangerous && 'danger'}
              disabled=${action.isDisabled} onClick=${() => choose(action)}>${action.label}</button>`)}
        </div>`}
    </div>`;
}

// Actions in a row; on a narrow page those after the first two are in a menu.
export function Toolbar({ actions, label, isNarrow, children }) {
  const shown = isNarrow && actions.length > 3 ? actions.slice(0, 2) : actions;
  const rest = actions.slice(shown.length);
  return html`
    <div class="toolbar" role="group" aria-label=${label}>
      ${shown.map((action) => html`
        <button type="button" key=${action.label} class=${action.isPrimary ? 'primary' : action.isDangerous && 'danger'}
          disabled=${action.isDisabled} title=${action.hint} onClick=${action.run}>${action.label}</button>`)}
      ${rest.length > 0 && html`<${Menu} label="More" actions=${rest} />`}
      ${children}
    </div>`;
}

// A table. Columns: {label, cell(row), isWide, isNumber}; those that are wide are not shown on a narrow page. The first cell
// is the row's header. `actions(row)` gives {label, run, isDisabled}, or texts; `nameOf(row)` completes the buttons' names.
export function Table({ caption, columns, rows, rowKey = (row) => row.id, actions, nameOf = (row) => row.name }) {
  const last = { label: 'Actions', cell: (row) => html`<${Actions} actions=${actions(row)} name=${nameOf(row)} />` };
  const all = actions ? [...columns, last] : columns;
  const classOf = ({ isWide, isNumber }) => `${isWide ? 'wide-only ' : ''}${isNumber ? 'number' : ''}`;
  return html`
    <table>
      <caption class="unseen">${caption}</caption>
      <thead><tr>${all.map((column) => html`<th scope="col" class=${classOf(column)}>${column.label}</th>`)}</tr></thead>
      <tbody>
        ${rows.map((row) => html`
          <tr key=${rowKey(row)}>
            ${all.map((column, index) => html`
              <${index ? 'td' : 'th'} scope=${index ? undefined : 'row'} class=${classOf(column)}>${column.cell(row)}<//>`)}
          </tr>`)}
      </tbody>
    </table>`;
}

function Actions({ actions, name }) {
  return html`
    <div class="actions">
      ${actions.filter(Boolean).map((action) => (action.label
        ? html`<button type="button" disabled=${action.isDisabled} aria-label=${`${action.label} ${name}`} onClick=${action.run}>${action.label}</button>`
        : action))}
    </div>`;
}
