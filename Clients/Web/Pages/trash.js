// The trash, and conflicts of files.

import { html } from './preact.js';
import { call } from './api.js';
import { confirmAct, Dialog, openDialog } from './dialogs.js';
import { bytes, counted, date, folderOf, itemsText, timeLeft } from './format.js';
import { useData } from './live.js';
import { attempt, Failure, Loaded, showToast, TablePage } from './parts.js';
import { Preview } from './preview.js';
import { useAction } from './store.js';

const namesMax = 3;

function batchText({ items }) {
  const names = items.slice(0, namesMax).map((entry) => entry.name).join(', ');
  return items.length > namesMax ? `${names} and ${counted(items.length - namesMax, 'more', 'more')}` : names;
}

export function TrashPage({ container }) {
  const deleted = useData(() => call('files.deleted', { container }), [container]);
  const restore = (batch) => attempt(async () => {
    await call('files.restore', { container, batch: batch.batch });
    deleted.reload();
    showToast(`${itemsText(batch.items)} restored`);
  });
  const erase = async (batch) => {
    const text = `${itemsText(batch.items)} (${bytes(batch.bytes)}) will be deleted on all devices, with all versions. This cannot be undone.`;
    const act = () => call('files.erase', { container, batch: batch.batch });
    if (await confirmAct({ title: 'Delete for good', label: 'Delete for good', text, act })) deleted.reload();
  };
  const expiry = (batch) => (batch.expires ? `in ${timeLeft(batch.expires)}` : 'Never');
  const columns = [
    {
      label: 'Deleted together',
      cell: (batch) => html`${batchText(batch)}
        <div class="note">${bytes(batch.bytes)}<span class="narrow-only">, deleted ${date(batch.trashed)}, erased ${expiry(batch)}</span></div>`,
    },
    { label: 'Deleted', isWide: true, cell: (batch) => html`${date(batch.trashed)}<div class="note">${batch.deviceName}</div>` },
    { label: 'Erased', isWide: true, cell: expiry },
  ];
  const actions = (batch) => [
    { label: 'Restore', run: () => restore(batch) },
    { label: 'Delete for good', run: () => erase(batch) },
  ];
  return html`
    <${TablePage} title="Trash" none="The trash is empty." loaded=${deleted} rowsOf=${(data) => data.batches} columns=${columns}
      actions=${actions} nameOf=${batchText} rowKey=${(batch) => batch.batch} />`;
}

export function ConflictsPage({ container }) {
  const conflicts = useData(() => call('files.conflicts', { container }), [container]);
  const open = async (entry) => {
    if (await openDialog(ConflictDialog, { container, entry })) {
      conflicts.reload();
      showToast(`The conflict of “${entry.name}” is decided`);
    }
  };
  const columns = [
    { label: 'File', cell: (entry) => html`${entry.name}<div class="note">${folderOf(entry)}</div>` },
    { label: 'Modified', isWide: true, cell: (entry) => date(entry.modified) },
    { label: 'Versions', isWide: true, isNumber: true, cell: (entry) => (entry.conflicts ?? 0) + 1 },
  ];
  return html`
    <${TablePage} title="Conflicts" none="There are no conflicts." loaded=${conflicts} rowsOf=${(data) => data.entries} columns=${columns}
      actions=${(entry) => [{ label: 'Compare', run: () => open(entry) }]}
      note="Two devices changed these files at the same time. Choose the version that stays; the others remain among the file's versions." />`;
}

// The current version, then the others.
const inConflict = (versions) =>
  [...versions.filter((version) => version.isCurrent), ...versions.filter((version) => version.isConflict && !version.isCurrent)];

function ConflictDialog({ container, entry, close }) {
  const versions = useData(() => call('files.versions', { container, item: entry.id }), [entry.id]);
  const { run, isBusy, error } = useAction(async (version) => {
    await call('files.resolve', { container, item: entry.id, version });
    close(true);
  });
  const card = (version) => html`
    <section key=${version.version} class="card" aria-label=${`Version of ${version.deviceName || date(version.modified)}`}>
      <h3>${version.deviceName || 'Unknown device'}${version.isCurrent && html` <span class="badge quiet">Current</span>`}</h3>
      <p class="quiet">${date(version.modified)}, ${bytes(version.size)}</p>
      <${Preview} container=${container} entry=${{ ...entry, size: version.size }} version=${version.version} />
      <button type="button" class="primary" disabled=${isBusy} onClick=${() => run(version.version)}>Keep this one</button>
    </section>`;
  return html`
    <${Dialog} title=${entry.name} close=${close} isWide>
      <${Failure} error=${error} />
      <${Loaded} ...${versions}>
        ${(data) => html`<div class="cards">${inConflict(data.versions).map(card)}</div>`}
      <//>
    <//>`;
}
