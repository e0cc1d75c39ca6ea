// Key-values: the settings that apps keep in sync.

import { html, useMemo, useState } from './preact.js';
import { call } from './api.js';
import { confirmAct, Dialog, openDialog } from './dialogs.js';
import { bytes, counted, date } from './format.js';
import { Grid, useSelection } from './grid.js';
import { editKey } from './key-dialog.js';
import { useData } from './live.js';
import { attempt, Heading, Loaded, showToast, Table, Toolbar } from './parts.js';
import { useIsNarrow } from './store.js';

const pageSize = 500;

const typeNames = {
  string: 'String', integer: 'Integer', real: 'Real', boolean: 'Boolean', data: 'Data', date: 'Date', array: 'JSON array',
  dictionary: 'JSON object',
};

function valueText({ type, value = '', size, isCut }) {
  if (type === 'data') return `Data, ${bytes(size)}`;
  if (type === 'date') return date(Date.parse(value)) || value;
  return isCut ? `${value}…` : value;
}

async function loadKeys(count) {
  const keys = [];
  let next;
  do {
    const answer = await call('keys.list', { after: next, limit: pageSize });
    keys.push(...answer.keys);
    next = answer.next;
  } while (next && keys.length < count);
  return { keys, next };
}

export function KeysPage() {
  const [count, setCount] = useState(2000);
  const [filter, setFilter] = useState('');
  const isNarrow = useIsNarrow();
  const loaded = useData(() => loadKeys(count), [count]);
  const rows = useMemo(() => {
    const text = filter.toLowerCase();
    const all = loaded.data?.keys ?? [];
    return all.filter((key) => key.name.toLowerCase().includes(text)).map((key) => ({ ...key, id: key.name }));
  }, [loaded.data, filter]);
  const selection = useSelection(rows);
  const chosen = selection.selected.map((id) => rows[selection.indexes.get(id)]);
  const isOne = chosen.length === 1;

  const edit = async (key) => (await editKey(key)) && loaded.reload();
  const open = (row) => attempt(async () => edit((await call('keys.get', { key: row.name })).key));
  const remove = async () => {
    const what = isOne ? `“${chosen[0].name}”` : counted(chosen.length, 'key');
    const act = async () => {
      for (const { name } of chosen) await call('keys.delete', { key: name });
    };
    const isDone = await confirmAct({
      title: isOne ? 'Delete key' : 'Delete keys', label: 'Delete', text: `${what} will be deleted on all devices.`, act,
    });
    if (!isDone) return;
    showToast(`${what} deleted`);
    loaded.reload();
  };
  const actions = [
    { label: 'Add key', isPrimary: true, run: () => edit() },
    { label: 'Edit', isDisabled: !isOne, run: () => open(chosen[0]) },
    { label: 'History', isDisabled: !isOne, run: () => openDialog(History, { name: chosen[0].name, onChange: loaded.reload }) },
    { label: 'Delete', isDisabled: !chosen.length, isDangerous: true, run: remove },
  ];
  const onKey = (event) => {
    if (event.key !== 'Delete' || !chosen.length) return false;
    remove();
    return true;
  };
  const nameCell = (key) => html`
    <span class="names"><span class="title">${key.name}</span>${isNarrow && html`<span class="note">${valueText(key)}</span>`}</span>`;
  const columns = [
    { id: 'name', label: 'Name', cell: nameCell },
    ...(isNarrow ? [] : [
      { id: 'value', label: 'Value', cell: valueText },
      { id: 'size', label: 'Type', cell: (key) => typeNames[key.type] ?? key.type },
      { id: 'modified', label: 'Modified', cell: (key) => date(key.modified) },
    ]),
  ];
  return html`
    <div class="page files">
      <${Heading}>Key-values<//>
      <${Toolbar} label="Keys" actions=${actions} isNarrow=${isNarrow}>
        <input type="search" class="search" aria-label="Filter by name" placeholder="Filter by name" value=${filter}
          onInput=${(event) => setFilter(event.target.value)} />
      <//>
      <${Loaded} ...${loaded}>
        ${(data) => html`
          ${rows.length === 0
            ? html`<p class="empty">${data.keys.length ? 'No name contains this text.' : 'There are no keys.'}</p>`
            : html`<${Grid} name="key" place=${filter} label="Keys" rows=${rows} columns=${columns} isNarrow=${isNarrow}
                selection=${selection} onOpen=${open} onKey=${onKey} />`}
          <p class="quiet footer">${counted(rows.length, 'key')}
            ${data.next && html`. <button type="button" class="text" onClick=${() => setCount(count + 2000)}>Load more</button>`}</p>`}
      <//>
    </div>`;
}

function History({ name, onChange, close }) {
  const history = useData(() => call('keys.history', { key: name }), [name]);
  const use = (version) => attempt(async () => {
    await call('keys.set', { key: name, type: version.type, value: version.value });
    close();
    onChange();
    showToast(`“${name}” has the former value again`);
  });
  const columns = [
    { label: 'Time', cell: (version) => html`${date(version.time)}<div class="note">${version.deviceName}</div>` },
    { label: 'Value', cell: (version) => html`<span class="value">${version.value === undefined ? html`<em>Deleted</em>` : valueText(version)}</span>` },
  ];
  const actions = (version) => {
    if (version.isCurrent) return [html`<span class="quiet">Current</span>`];
    return version.value === undefined || version.isCut ? [] : [{ label: 'Use', run: () => use(version) }];
  };
  return html`
    <${Dialog} title=${`History of ${name}`} close=${close}>
      <${Loaded} ...${history}>
        ${(data) => html`<${Table} caption="Values, newest first" columns=${columns} rows=${data.versions} actions=${actions}
        rowKey=${(row) => row.time} nameOf=${(row) => `value of ${date(row.time)}`} />`}
      <//>
    <//>`;
}
