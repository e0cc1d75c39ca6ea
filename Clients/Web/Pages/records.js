// Records: the typed data that apps keep in zones.

import { html, useMemo, useState } from './preact.js';
import { call } from './api.js';
import { Dialog, openDialog } from './dialogs.js';
import { counted, date } from './format.js';
import { Grid, useSelection } from './grid.js';
import { useData } from './live.js';
import { attempt, Check, Failure, Field, Heading, Loaded, showToast, Toolbar } from './parts.js';
import { fieldText, FieldsTable, openRecord } from './record-dialog.js';
import { pageHref } from './routes.js';
import { useAction, useIsNarrow } from './store.js';

const pageSize = 200;
const defaultZone = '_defaultZone';
const commonFields = { '': 'Name', _modificationDate: 'Modified', _creationDate: 'Created' };

async function loadRecords(query, count) {
  const records = [];
  let next;
  do {
    const answer = await call('records.query', { ...query, after: next, limit: pageSize });
    records.push(...answer.records);
    next = answer.next;
  } while (next && records.length < count);
  return { records, next };
}

// A choice in the toolbar. `options` are [value, label].
function Choice({ label, value, options, onValue }) {
  return html`
    <label class="choice">${label} <select onChange=${(event) => onValue(event.target.value)}>
      ${options.map(([id, text]) => html`<option key=${id} value=${id} selected=${id === value}>${text}</option>`)}
    </select></label>`;
}

const same = (names) => names.map((name) => [name, name]);

export function RecordsPage({ container, path }) {
  const [database, setDatabase] = useState('private');
  const [zone = defaultZone, type = ''] = database === 'public' ? [defaultZone, path[1]] : path;
  const [asked, setAsked] = useState({ predicate: '' });
  const [count, setCount] = useState(pageSize);
  const isNarrow = useIsNarrow();
  const place = { container, database, zone };
  const query = { ...place, type, ...asked };
  const inputs = [container, database, zone];
  const zones = useData(() => call('records.zones', place), inputs);
  const types = useData(() => call('records.types', place), inputs);
  const loaded = useData(() => loadRecords(query, count), [...inputs, type, asked, count]);
  const rows = useMemo(
    () => (loaded.data?.records ?? []).map((record) => ({ ...record, id: encodeURIComponent(record.name) })), [loaded.data],
  );
  const selection = useSelection(rows);

  const go = (...parts) => {
    setCount(pageSize);
    location.hash = pageHref('records', container, ...parts.filter(Boolean));
  };
  const changeDatabase = (next) => {
    setDatabase(next);
    go();
  };
  const ask = (next) => {
    setCount(pageSize);
    setAsked(next);
  };
  const typeNames = [...new Set([...(types.data?.types ?? []).map((one) => one.name), ...(type ? [type] : [])])];
  const zoneNames = [...new Set([defaultZone, ...(zones.data?.zones ?? []).map((one) => one.name), zone])];
  const open = (row) => attempt(async () => {
    const record = row && (await call('records.get', { ...place, name: row.name })).record;
    const done = await openRecord({ place, record, types: typeNames, type });
    if (!done) return;
    showToast(done);
    loaded.reload();
    types.reload();
  });
  const conflicts = zones.data?.conflicts;
  // The predicate is no predicate: the query's form shows where.
  const isWrong = loaded.error?.details?.start !== undefined;
  const actions = [
    { label: 'Add record', isPrimary: true, run: () => open() },
    { label: 'Open', isDisabled: selection.selected.length !== 1, run: () => open(rows[selection.indexes.get(selection.selected[0])]) },
    conflicts > 0 && { label: counted(conflicts, 'conflict'), run: () => openDialog(Conflicts, { place }) },
  ].filter(Boolean);
  const line = (record) => record.fields.map((field) => `${field.name}: ${fieldText(field)}`).join(', ');
  const nameCell = (record) => html`
    <span class="names"><span class="title">${record.name}</span>${isNarrow && html`<span class="note">${line(record)}</span>`}</span>`;
  const columns = [
    { id: 'name', label: 'Name', cell: nameCell },
    ...(isNarrow ? [] : [
      { id: 'value', label: 'Fields', cell: line },
      { id: 'size', label: 'Type', cell: (record) => record.type },
      { id: 'modified', label: 'Modified', cell: (record) => (record.isPending ? 'Not sent yet' : date(record.modified?.time)) },
    ]),
  ];
  const fields = (types.data?.types ?? []).filter((one) => !type || one.name === type).flatMap((one) => one.fields);
  return html`
    <div class="page files">
      <${Heading}>Records<//>
      <${Toolbar} label="Records" actions=${actions} isNarrow=${isNarrow}>
        <${Choice} label="Database" value=${database} options=${[['private', 'Private'], ['public', 'Public']]} onValue=${changeDatabase} />
        <${Choice} label="Zone" value=${zone} options=${zoneNames.map((name) => [name, name === defaultZone ? 'Default' : name])} onValue=${(name) => go(name)} />
        <${Choice} label="Type" value=${type} options=${[['', 'All'], ...same(typeNames)]} onValue=${(name) => go(zone, name)} />
      <//>
      <${QueryForm} asked=${asked} onAsk=${ask} query=${query} fields=${[...new Set(fields.map((field) => field.name))].sort()} error=${loaded.error} />
      <${Failure} error=${isWrong ? loaded.error : zones.error ?? types.error} />
      ${!isWrong && html`<${Loaded} ...${loaded}>
        ${(data) => html`
          ${rows.length === 0
            ? html`<p class="empty">${asked.predicate ? 'No record matches the predicate.' : 'There are no records.'}</p>`
            : html`<${Grid} name="record" place=${JSON.stringify(query)} label="Records" rows=${rows} columns=${columns} isNarrow=${isNarrow}
                selection=${selection} onOpen=${open} />`}
          <p class="quiet footer">${data.next ? `The first ${counted(rows.length, 'record')}` : counted(rows.length, 'record')}
            ${data.next && html`. <button type="button" class="text" onClick=${() => setCount(rows.length + pageSize)}>Load more</button>`}</p>`}
      <//>`}
    </div>`;
}

function QueryForm({ asked, onAsk, query, fields, error }) {
  const [predicate, setPredicate] = useState(asked.predicate);
  const [field, setField] = useState('');
  const [isDescending, setIsDescending] = useState(false);
  const next = () => ({ predicate, sort: field ? [{ field, isDescending }] : undefined });
  const submit = (event) => {
    event.preventDefault();
    onAsk(next());
  };
  const explain = () => openDialog(Plan, { query: { ...query, ...next() } });
  const { start, end } = error?.details ?? {};
  return html`
    <form class="query" role="search" onSubmit=${submit}>
      <${Field} label="Predicate" value=${predicate} onValue=${setPredicate} placeholder="count > 3 AND title BEGINSWITH[c] 'a'"
        spellcheck=${false} aria-invalid=${start !== undefined} />
      <${Choice} label="Sort by" value=${field} options=${[...Object.entries(commonFields), ...same(field && !(field in commonFields) ? [...new Set([...fields, field])] : fields)]} onValue=${setField} />
      ${field && html`<${Check} label="Descending" value=${isDescending} onValue=${setIsDescending} />`}
      <button class="primary">Search</button>
      <button type="button" onClick=${explain}>Explain</button>
    </form>
    ${start !== undefined && html`<p class="place"><code>${asked.predicate.slice(0, start)}<mark>${asked.predicate.slice(start, end) || ' '}</mark>${asked.predicate.slice(end)}</code></p>`}`;
}

const ways = {
  scan: 'Reads all records.', index: 'Reads an index.', index_sorted: 'Reads an index, then sorts.', scan_sorted: 'Reads and sorts all records.',
};

function Plan({ query, close }) {
  const plan = useData(() => call('records.explain', query), []);
  const entries = (data) => [
    ['Index', data.index], ['By the index', data.answered.join(', ')], ['On each record', data.tested.join(', ')],
    ['First call reads', `${counted(data.rows, 'index row')}, ${counted(data.examined, 'record')}`], ['A faster index', data.wanted],
  ];
  return html`
    <${Dialog} title="How the server answers this query" close=${close}>
      <${Loaded} ...${plan}>
        ${(data) => html`
          <p>${ways[data.way]}</p>
          <dl>${entries(data).map(([name, text]) => text && html`<dt>${name}</dt><dd>${text}</dd>`)}</dl>`}
      <//>
    <//>`;
}

function Conflicts({ place, close }) {
  const conflicts = useData(() => call('records.conflicts', place), []);
  const { run, isBusy, error } = useAction(async ({ number }, keep) => {
    await call('records.resolve', { ...place, number, keep });
    conflicts.reload();
  });
  return html`
    <${Dialog} title="Conflicts" close=${close} isWide>
      <p class="quiet">Two devices changed these records at the same time. The server's is used until you decide.</p>
      <${Failure} error=${error} />
      <${Loaded} ...${conflicts}>
        ${(data) => (data.conflicts.length === 0 ? html`<p class="empty">There are no conflicts.</p>` : data.conflicts.map((conflict) => html`
          <section key=${conflict.number} class="card" aria-label=${conflict.name}>
            <h3>${conflict.name}</h3>
            <${FieldsTable} mine=${conflict.client?.fields} others=${conflict.server?.fields} />
            <div class="buttons">
              <button type="button" disabled=${isBusy} onClick=${() => run(conflict, 'client')}>Keep this device's</button>
              <button type="button" class="primary" disabled=${isBusy} onClick=${() => run(conflict, 'server')}>Keep the server's</button>
            </div>
          </section>`))}
      <//>
    <//>`;
}
