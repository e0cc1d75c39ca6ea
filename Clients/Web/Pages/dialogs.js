// Dialogs: a stack that any module can add to, and the usual ones.

import { html, useEffect, useLayoutEffect, useRef, useState } from './preact.js';
import { Failure, Field, IconButton } from './parts.js';
import { createStore, useAction, useStore } from './store.js';

const dialogs = createStore([]);

// Shows a dialog. The component gets `close(result)`; the promise gives the result, or undefined if it was dismissed.
export function openDialog(component, props = {}) {
  return new Promise((resolve) => {
    const dialog = { component, props };
    dialog.close = (result) => {
      dialogs.set(dialogs.get().filter((other) => other !== dialog));
      resolve(result);
    };
    dialogs.set([...dialogs.get(), dialog]);
  });
}

export function closeAllDialogs() {
  for (const dialog of dialogs.get()) dialog.close();
}

let dialogNumber = 0;
const dialogKeys = new WeakMap();

export function Dialogs() {
  return useStore(dialogs).map((dialog) => {
    if (!dialogKeys.has(dialog)) dialogKeys.set(dialog, ++dialogNumber);
    return html`<${dialog.component} key=${dialogKeys.get(dialog)} ...${dialog.props} close=${dialog.close} />`;
  });
}

let titleNumber = 0;

export function Dialog({ title, close, isWide, children }) {
  const element = useRef();
  const [id] = useState(() => `dialog-${++titleNumber}`);
  useLayoutEffect(() => {
    element.current.showModal();
    // The first field gets the focus; a question without fields gives it to Cancel.
    element.current.querySelector('form :is(input:not([hidden]), select, textarea, button)')?.focus();
    // Closing gives the focus back to the element that had it.
    return () => element.current?.close();
  }, []);
  const onCancel = (event) => {
    event.preventDefault();
    close();
  };
  return html`
    <dialog ref=${element} class=${isWide && 'wide'} aria-labelledby=${id} onCancel=${onCancel}>
      <header>
        <h2 id=${id}>${title}</h2>
        <${IconButton} icon="close" label="Close" onClick=${() => close()} />
      </header>
      ${children}
    </dialog>`;
}

// A dialog with fields. `submit` may throw: the message is shown above the buttons.
export function FormDialog({ title, label, isDangerous, submit, close, children }) {
  const { run, isBusy, error } = useAction(submit);
  const onSubmit = (event) => {
    event.preventDefault();
    run();
  };
  return html`
    <${Dialog} title=${title} close=${close}>
      <form onSubmit=${onSubmit}>
        ${children}
        <${Failure} error=${error} />
        <div class="buttons">
          <button type="button" onClick=${() => close()}>Cancel</button>
          <button class=${isDangerous ? 'danger' : 'primary'} disabled=${isBusy}>${isBusy ? 'Please wait' : label}</button>
        </div>
      </form>
    <//>`;
}

// Asks before an act that cannot be undone, then does it. Gives true when it is done.
export function confirmAct({ title, text, label, act }) {
  return openDialog(Confirmation, { title, text, label, act });
}

function Confirmation({ title, text, label, act, close }) {
  const submit = async () => {
    await act();
    close(true);
  };
  return html`
    <${FormDialog} title=${title} label=${label} isDangerous submit=${submit} close=${close}><p>${text}</p><//>`;
}

// Asks for a name. `submit(name)` does the work.
export function askName({ title, label, name = '', hint, submit }) {
  return openDialog(NameDialog, { title, label, name, hint, submit });
}

function NameDialog({ title, label, name, hint, submit, close }) {
  const [value, setValue] = useState(name);
  const field = useRef();
  useEffect(() => {
    field.current.focus();
    // The extension stays when one types.
    const dot = name.lastIndexOf('.');
    field.current.setSelectionRange(0, dot > 0 ? dot : name.length);
  }, []);
  const save = async () => {
    if (!value.trim()) return field.current.focus();
    await submit(value);
    close(true);
  };
  return html`
    <${FormDialog} title=${title} label=${label} submit=${save} close=${close}>
      <${Field} label="Name" inputRef=${field} value=${value} onValue=${setValue} hint=${hint} required maxlength="255" />
    <//>`;
}
