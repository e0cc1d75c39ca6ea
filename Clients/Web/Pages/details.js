// A file: its preview, properties and versions.

import { html, useState } from './preact.js';
import { call, contentAddress, download } from './api.js';
import { Dialog, openDialog } from './dialogs.js';
import { bytes, date } from './format.js';
import { shareFile } from './links.js';
import { useData } from './live.js';
import { Failure, Loaded, Table } from './parts.js';
import { Preview } from './preview.js';
import { folderHref } from './routes.js';
import { useAction } from './store.js';

export const openDetails = (list, entry) => openDialog(Details, { list, first: entry });

const kindNames = { file: 'File', link: 'Symbolic link', package: 'Package' };

function Details({ list, first, close }) {
  const { container } = list;
  const item = useData(() => call('files.item', { container, item: first.id }), [first.id]);
  const entry = item.data?.entry ?? first;
  const trail = item.data?.trail;
  const isFile = entry.kind === 'file';
  return html`
    <${Dialog} title=${entry.name} close=${close} isWide>
      <div class="details">
        <${Preview} container=${container} entry=${entry} version=${entry.version} />
        <div>
          <dl>
            <dt>Kind</dt><dd>${entry.type || kindNames[entry.kind]}</dd>
            <dt>Size</dt><dd>${bytes(entry.size)}</dd>
            ${entry.modified && html`<dt>Modified</dt><dd>${date(entry.modified)}</dd>`}
            ${entry.created && html`<dt>Created</dt><dd>${date(entry.created)}</dd>`}
            ${entry.tags?.length > 0 && html`<dt>Tags</dt><dd>${entry.tags.join(', ')}</dd>`}
            ${trail && html`<dt>Folder</dt><dd><a href=${folderHref(container, trail)} onClick=${() => close()}>
              ${['Documents', ...trail.map((folder) => folder.name)].join(' / ')}</a></dd>`}
          </dl>
          <${Failure} error=${item.error} />
          ${entry.conflicts > 0 && html`
            <p><span class="badge">Conflict</span> Devices changed this file at the same time.${' '}
              <a href=${`#/conflicts/${encodeURIComponent(container)}`} onClick=${() => close()}>Choose a version</a></p>`}
          ${isFile && html`
            <div class="toolbar">
              <button type="button" class="primary" onClick=${() => download(contentAddress(container, entry.id), entry.name)}>Download</button>
              <button type="button" onClick=${() => shareFile(container, entry)}>Share link</button>
            </div>
            <${Versions} list=${list} entry=${entry} />`}
        </div>
      </div>
    <//>`;
}

function Versions({ list, entry }) {
  const { container } = list;
  const versions = useData(() => call('files.versions', { container, item: entry.id }), [entry.id]);
  const [restored, setRestored] = useState('');
  const { run, isBusy, error } = useAction(async (version) => {
    const answer = await call('files.restoreVersion', { container, item: entry.id, version: version.version });
    setRestored(`The content of ${date(version.modified)} is the current version again.`);
    list.merge([answer.entry]);
    await versions.reload();
  });
  const columns = [
    { label: 'Version', cell: (version) => html`${date(version.modified)}<div class="note">${[bytes(version.size), version.deviceName].filter(Boolean).join(', ')}</div>` },
  ];
  const actions = (version) => [
    version.isConflict && html`<span class="badge">Conflict</span>`,
    version.isCurrent ? html`<span class="quiet">Current</span>` : { label: 'Restore', isDisabled: isBusy, run: () => run(version) },
    { label: 'Download', run: () => download(contentAddress(container, entry.id, version.version), entry.name) },
  ];
  return html`
    <h3>Versions</h3>
    <p class="quiet" role="status">${restored}</p>
    <${Failure} error=${error} />
    <${Loaded} ...${versions}>
      ${(data) => html`<${Table} caption="Versions" columns=${columns} rows=${data.versions} actions=${actions}
        rowKey=${(row) => row.version} nameOf=${(row) => `version of ${date(row.modified)}`} />`}
    <//>`;
}
