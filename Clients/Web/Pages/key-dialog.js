// The dialog that adds or changes a key.

import { html, useState } from './preact.js';
import { call, CallError } from './api.js';
import { Dialog, FormDialog, openDialog } from './dialogs.js';
import { bytes } from './format.js';
import { Field } from './parts.js';

// Gives true when the key was saved. Without a key, it adds one.
export const editKey = (key) => openDialog(KeyDialog, { first: key });

const editors = { string: 'String', integer: 'Integer', real: 'Real', boolean: 'Boolean', date: 'Date', json: 'JSON array or object' };

const invalid = (message) => new CallError('invalidArguments', message);

// Checks a text of an editor, and gives {type, value} for the server.
function read(editor, text) {
  const trimmed = text.trim();
  if (editor === 'integer') {
    if (!/^[+-]?\d+$/.test(trimmed)) throw invalid('An integer has digits only, such as 42 or -7.');
    const number = BigInt(trimmed.replace('+', ''));
    if (BigInt.asIntN(64, number) !== number) throw invalid('The integer is outside of 64 bits.');
    return { type: 'integer', value: String(number) };
  }
  if (editor === 'real') {
    if (trimmed === '' || Number.isNaN(Number(trimmed))) throw invalid('A real number looks like 2.5 or 1e-9.');
    return { type: 'real', value: trimmed };
  }
  if (editor === 'date') {
    const time = Date.parse(trimmed);
    if (Number.isNaN(time)) throw invalid('A date looks like 2026-01-31T12:00:00Z.');
    // A text that is a full date already keeps its decimals.
    const isFull = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/.test(trimmed);
    return { type: 'date', value: isFull ? trimmed : new Date(time).toISOString() };
  }
  if (editor === 'json') {
    let parsed;
    try {
      parsed = JSON.parse(text);
    } catch {
      throw invalid('This is not JSON. Check quotes, commas and brackets.');
    }
    if (parsed === null || typeof parsed !== 'object') throw invalid('The JSON must be an array or an object.');
    return { type: Array.isArray(parsed) ? 'array' : 'dictionary', value: text };
  }
  return { type: editor, value: text };
}

function editorOf(type) {
  return type === 'array' || type === 'dictionary' ? 'json' : type;
}

const now = () => `${new Date().toISOString().slice(0, 19)}Z`;
const firstTexts = { boolean: () => 'true', date: now, json: () => '{}' };
const hints = {
  integer: 'From -9223372036854775808 to 9223372036854775807',
  date: 'In UTC, such as 2026-01-31T12:00:00Z',
};

function KeyDialog({ first, close }) {
  const [name, setName] = useState(first?.name ?? '');
  const [editor, setEditor] = useState(first ? editorOf(first.type) : 'string');
  const [text, setText] = useState(first?.value ?? '');
  const title = first ? `Key ${first.name}` : 'Add key';
  if (!(editor in editors)) {
    return html`
      <${Dialog} title=${title} close=${close}>
        <p>This value is data (${bytes(first.size)}). Apps can change it; this page cannot.</p>
        <div class="buttons"><button type="button" class="primary" onClick=${() => close()}>Close</button></div>
      <//>`;
  }
  const submit = async () => {
    if (!name) throw invalid('A key needs a name.');
    await call('keys.set', { key: name, ...read(editor, text) });
    close(true);
  };
  const changeEditor = (event) => {
    const next = event.target.value;
    setEditor(next);
    if (!first) setText(firstTexts[next]?.() ?? '');
  };
  return html`
    <${FormDialog} title=${title} label="Save" submit=${submit} close=${close}>
      ${!first && html`<${Field} label="Name" value=${name} onValue=${setName} required />`}
      <div class="field">
        <label for="key-type">Type</label>
        <select id="key-type" value=${editor} onChange=${changeEditor}>
          ${Object.entries(editors).map(([id, label]) => html`<option value=${id} selected=${id === editor}>${label}</option>`)}
        </select>
      </div>
      <${ValueField} editor=${editor} text=${text} setText=${setText} />
    <//>`;
}

function ValueField({ editor, text, setText }) {
  const onInput = (event) => setText(event.target.value);
  if (editor === 'string' || editor === 'json') {
    return html`
      <div class="field">
        <label for="key-value">Value</label>
        <textarea id="key-value" rows="6" value=${text} onInput=${onInput} spellcheck=${false}></textarea>
      </div>`;
  }
  if (editor === 'boolean') {
    return html`
      <div class="field">
        <label for="key-value">Value</label>
        <select id="key-value" onChange=${onInput}>
          ${['true', 'false'].map((value) => html`<option value=${value} selected=${value === (text === 'false' ? 'false' : 'true')}>${value}</option>`)}
        </select>
      </div>`;
  }
  return html`<${Field} label="Value" value=${text} onValue=${setText} hint=${hints[editor]} required inputmode=${editor === 'date' ? 'text' : 'decimal'} />`;
}
