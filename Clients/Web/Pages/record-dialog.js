// The dialog that shows, adds and changes a record.

import { html, useState } from './preact.js';
import { call, CallError } from './api.js';
import { confirmAct, Dialog, FormDialog, openDialog } from './dialogs.js';
import { bytes, counted, date } from './format.js';
import { Field, Table } from './parts.js';

const hints = {
  string: '', integer: '42', real: '2.5', date: '2026-01-31T12:00:00Z', reference: 'Record name',
  location: '52.5, 13.4', strings: '["one", "two"]', integers: '[1, 2]', reals: '[2.5]', dates: '["2026-01-31T12:00:00Z"]',
  references: '["name"]', locations: '["52.5, 13.4"]',
};

// A value in a line.
export function fieldText({ type, value, size, count, isCut }) {
  if (size !== undefined) return count === undefined ? `${type}, ${bytes(size)}` : `${counted(count, 'asset')}, ${bytes(size)}`;
  if (type === 'date') return date(Date.parse(value)) || value;
  return isCut ? `${value}…` : value;
}

// Gives a sentence that says what was done, or undefined. Without a record, it adds one.
export const openRecord = (props) => openDialog(RecordDialog, props);

// Two states of a record, side by side; undefined: deleted.
export function FieldsTable({ mine, others, mineLabel = "This device's" }) {
  const names = [...new Set([...(mine ?? []), ...(others ?? [])].map((field) => field.name))].sort();
  const cell = (fields) => (name) => {
    const field = fields?.find((one) => one.name === name);
    return html`<span class="value">${fields ? field && fieldText(field) : html`<em>Deleted</em>`}</span>`;
  };
  const columns = [
    { label: 'Field', cell: (name) => name },
    { label: mineLabel, cell: cell(mine) },
    { label: html`<span class="value">The server's</span>`, cell: cell(others) },
  ];
  return html`<${Table} caption="Both records" columns=${columns} rows=${names} rowKey=${(name) => name} />`;
}

function Conflict({ mine, server, close }) {
  return html`
    <${Dialog} title="The record was changed meanwhile" close=${close} isWide>
      <${FieldsTable} mine=${mine} others=${server?.fields} mineLabel="Yours" />
      <div class="buttons">
        <button type="button" onClick=${() => close()}>Edit on</button>
        ${server && html`<button type="button" onClick=${() => close('mine')}>Save mine over it</button>`}
        <button type="button" class="primary" onClick=${() => close('server')}>Keep the server's</button>
      </div>
    <//>`;
}

function RecordDialog({ place, record: known, types, type: firstType, close }) {
  const [fields, setFields] = useState((known?.fields ?? []).map((field) => ({ ...field, first: field.value })));
  const [name, setName] = useState('');
  const [type, setType] = useState(firstType || types[0] || '');
  const change = (field, next) => setFields(fields.map((other) => (other === field ? { ...field, ...next } : other)));

  // The fields that differ from the record as it was opened; null removes one.
  const changes = () => {
    const found = {};
    for (const field of fields) {
      if (field.value !== field.first) found[field.name] = { type: field.type, value: field.value, deletesSelf: field.deletesSelf };
    }
    for (const field of known?.fields ?? []) {
      if (!fields.some((one) => one.name === field.name)) found[field.name] = null;
    }
    return found;
  };
  // Runs a call with the change tag; when another device was faster, asks which record stays.
  const act = async (method, body, done) => {
    const base = { ...place, ...body };
    let tag = known?.changeTag;
    for (;;) {
      try {
        await call(method, { ...base, changeTag: tag });
        return close(done);
      } catch (error) {
        const { field, server } = error.details ?? {};
        if (field) throw new CallError(error.code, `${field}: ${error.message}`, error.details);
        if (error.code !== 'serverRecordChanged') throw error;
        const other = server && JSON.parse(server);
        const mine = method === 'records.delete' ? undefined : fields;
        const kept = await openDialog(Conflict, { mine, server: other });
        if (kept === 'server') return close('The server’s record was kept');
        if (!kept) return undefined;
        tag = other.changeTag;
      }
    }
  };
  const submit = () => act('records.save', { name: known?.name ?? (name || undefined), type: known?.type ?? type, fields: changes() }, 'The record was saved');
  const remove = () => confirmAct({
    title: 'Delete record', label: 'Delete', text: `“${known.name}” will be deleted on all devices.`,
    act: () => act('records.delete', { name: known.name }, 'The record was deleted'),
  });
  const stamp = (label, { time, deviceName, account } = {}) => time && html`<dt>${label}</dt><dd>${date(time)} ${deviceName ?? (place.database === 'public' ? account : '')}</dd>`;
  return html`
    <${FormDialog} title=${known ? known.name : 'Add record'} label="Save" submit=${submit} close=${close}>
      ${known
        ? html`<dl>
            <dt>Type</dt><dd>${known.type}</dd>
            ${known.parent && html`<dt>Belongs to</dt><dd>${known.parent}</dd>`}
            ${stamp('Created', known.created)}${stamp('Modified', known.modified)}
            ${known.changeTag && html`<dt>Change tag</dt><dd><code>${known.changeTag}</code></dd>`}
          </dl>`
        : html`
          <${Field} label="Name" value=${name} onValue=${setName} hint="Empty: a random name" maxlength="255" />
          <${Field} label="Type" value=${type} onValue=${setType} required list="record-types" />
          <datalist id="record-types">${types.map((one) => html`<option value=${one} />`)}</datalist>`}
      ${fields.map((field) => html`
        <${FieldEditor} key=${field.name} field=${field} place=${place} record=${known} onValue=${(value) => change(field, { value })}
          onRemove=${() => setFields(fields.filter((other) => other !== field))} />`)}
      <${NewField} names=${fields.map((field) => field.name)} onAdd=${(field) => setFields([...fields, field])} />
      ${known && html`<button type="button" class="danger" onClick=${remove}>Delete record</button>`}
    <//>`;
}

function FieldEditor({ field, place, record, onValue, onRemove }) {
  const { name, type, value, count = 1 } = field;
  const id = `edit-${name}`;
  const onInput = (event) => onValue(event.target.value);
  const addressOf = (index) => `/api/asset?${new URLSearchParams({ ...place, record: record.name, field: name, index })}`;
  const isAsset = record && type.startsWith('asset');
  const content = !(type in hints)
    ? html`<div id=${id}>${fieldText(field)} ${isAsset && Array.from({ length: count }, (_, index) => html`<a href=${addressOf(index)} download>Download ${count > 1 ? index + 1 : ''}</a> `)}</div>`
    : type === 'string' || (value ?? '').length > 60
      ? html`<textarea id=${id} rows=${value.length > 60 ? 4 : 1} value=${value} onInput=${onInput}></textarea>`
      : html`<input id=${id} value=${value} onInput=${onInput} placeholder=${hints[type]} autocomplete="off" spellcheck=${false} />`;
  return html`
    <div class="field">
      <div class="heading">
        <${type in hints ? 'label' : 'strong'} for=${id}>${name} <span class="note">${type}</span><//>
        <button type="button" class="text" aria-label=${`Remove ${name}`} onClick=${onRemove}>Remove</button>
      </div>
      ${content}
    </div>`;
}

function NewField({ names, onAdd }) {
  const [name, setName] = useState('');
  const [type, setType] = useState('string');
  const isName = /^[A-Za-z]\w*$/.test(name) && !names.includes(name);
  const add = () => {
    onAdd({ name, type, value: '' });
    setName('');
  };
  return html`
    <div class="toolbar" role="group" aria-label="New field">
      <input aria-label="Name of a new field" placeholder="New field" value=${name} onInput=${(event) => setName(event.target.value)} autocomplete="off" />
      <select aria-label="Type of the new field" onChange=${(event) => setType(event.target.value)}>
        ${Object.keys(hints).map((one) => html`<option value=${one} selected=${one === type}>${one}</option>`)}
      </select>
      <button type="button" disabled=${!isName} onClick=${add}>Add field</button>
    </div>`;
}
