// The files of a folder, and the results of a search.

import { html, useEffect, useMemo, useRef, useState } from './preact.js';
import { call } from './api.js';
import { askName } from './dialogs.js';
import { downloadAll, fileActions, openEntry, trashEntries } from './file-actions.js';
import { filesOfDrop, filesOfInput, uploadInto } from './drop.js';
import { FolderList, isFolder } from './folder.js';
import { bytes, counted, date, folderOf } from './format.js';
import { Grid, useSelection } from './grid.js';
import { Icon } from './icons.js';
import { useChanged, useData } from './live.js';
import { Failure, Heading, Loaded, Toolbar } from './parts.js';
import { folderHref, pageHref } from './routes.js';
import { useIsNarrow, useUpdate } from './store.js';

const kindNames = { folder: 'Folder', link: 'Link', package: 'Package' };

function NameCell({ entry, note }) {
  return html`
    <${Icon} name=${entry.kind} />
    <span class="names">
      <span class="title">${entry.name}${' '}
        ${entry.conflicts > 0 && html`<span class="badge">Conflict</span>`}
        ${entry.pending && html`<span class="badge quiet">Pending</span>`}
      </span>
      ${note && html`<span class="note">${note}</span>`}
    </span>`;
}

const sizeText = (entry) => (entry.kind === 'file' ? bytes(entry.size) : kindNames[entry.kind] ?? '');

const noteText = (entry) => [sizeText(entry), date(entry.modified)].filter(Boolean).join(', ');

function fileColumns(isNarrow) {
  if (isNarrow) {
    return [{ id: 'name', label: 'Name', canSort: true, cell: (entry) => html`<${NameCell} entry=${entry} note=${noteText(entry)} />` }];
  }
  return [
    { id: 'name', label: 'Name', canSort: true, cell: (entry) => html`<${NameCell} entry=${entry} />` },
    { id: 'size', label: 'Size', canSort: true, cell: sizeText },
    { id: 'modified', label: 'Modified', canSort: true, cell: (entry) => date(entry.modified) },
  ];
}

// `where`: {path} or {folder}.
export function FilesPage({ container, where }) {
  const place = JSON.stringify([container, where]);
  const update = useUpdate();
  const list = useMemo(() => new FolderList(container, where, update), [place]);
  const isNarrow = useIsNarrow();
  const selection = useSelection(list.entries);
  const columns = useMemo(() => fileColumns(isNarrow), [isNarrow]);
  const page = useRef();
  useEffect(() => {
    selection.set({ ids: new Set(), active: undefined, anchor: undefined });
    list.open().then(() => {
      // The link that was followed is gone: the list gets the focus.
      if (document.activeElement === document.body) page.current?.querySelector('.grid')?.focus();
    });
    return () => list.close();
  }, [list]);
  useChanged(() => list.refresh());

  const name = list.trail.at(-1)?.name ?? 'Documents';
  useEffect(() => {
    document.title = `${name} – Nephos`;
  }, [name]);

  if (!list.isOpen) {
    return html`
      <div class="page">
        <${Trail} container=${container} trail=${[]} />
        <${Loaded} error=${list.error} reload=${() => list.open()} />
        ${list.error && html`<p><a href=${pageHref('files', container)}>Go to Documents</a></p>`}
      </div>`;
  }

  const chosen = selection.selected.map((id) => list.entries[selection.indexes.get(id)]);
  const actions = chosen.length ? fileActions(list, chosen, selection) : folderActions(list, page);
  const onKey = (event) => {
    const active = list.entries[selection.indexes.get(selection.active)];
    const entries = chosen.length ? chosen : active ? [active] : [];
    if (event.key === 'Delete' && entries.length) trashEntries(list, entries, selection);
    else if (event.key === 'F2' && entries.length === 1) fileActions(list, entries, selection).find((action) => action.label === 'Rename').run();
    else if (event.key === 'Backspace' && list.trail.length) location.hash = folderHref(container, list.trail.slice(0, -1));
    else return false;
    return true;
  };
  const upload = (event) => {
    uploadInto(list, filesOfInput(event.target));
    event.target.value = '';
  };

  return html`
    <div class="page files" ref=${page}>
      <${Trail} container=${container} trail=${list.trail} />
      <${Toolbar} label=${chosen.length ? 'Selected items' : 'Folder'} actions=${actions} isNarrow=${isNarrow}>
        ${chosen.length > 0 && html`<span class=${isNarrow ? 'unseen' : 'selected'} role="status">${counted(chosen.length, 'item')} selected</span>`}
        ${/* On a narrow page it stays, so that the rows do not move under a second click. */
          (isNarrow || !chosen.length) && html`<${SearchField} container=${container} />`}
      <//>
      <input type="file" multiple hidden class="choose-files" aria-label="Files to upload" onChange=${upload} />
      <input type="file" webkitdirectory hidden class="choose-folder" aria-label="Folder to upload" onChange=${upload} />
      <${Failure} error=${list.error} />
      <${DropArea} onDrop=${(transfer) => uploadInto(list, filesOfDrop(transfer))}>
        ${list.entries.length === 0 && list.isWhole
          ? html`<div class="empty"><p>This folder is empty. Drop files here, or choose them.</p>
              <button type="button" class="primary" onClick=${() => chooseFiles(page)}>Upload files</button></div>`
          : html`<${Grid} name="entry" place=${place} label=${`Files in ${name}`} rows=${list.entries} columns=${columns}
              isNarrow=${isNarrow} selection=${selection} onKey=${onKey} onOpen=${(entry) => openEntry(list, entry)}
              sort=${list.isWhole ? list.sort : undefined} onSort=${(sort) => list.sortBy(sort)}
              hasMore=${!list.isWhole} onMore=${() => list.more()} />`}
      <//>
      <p class="quiet footer">${countText(list)}</p>
    </div>`;
}

function countText(list) {
  const count = counted(list.entries.length, 'item');
  return list.isWhole ? count : `${count} so far. More load as you scroll. A complete list can be sorted.`;
}

const chooseFiles = (page) => page.current.querySelector('.choose-files').click();

function folderActions(list, page) {
  const makeFolder = () => askName({
    title: 'New folder',
    label: 'Make folder',
    submit: async (name) => {
      const { entry } = await call('files.makeFolder', { container: list.container, folder: list.folder.id, name });
      list.merge([entry]);
    },
  });
  return [
    { label: 'Upload', isPrimary: true, run: () => chooseFiles(page) },
    { label: 'New folder', run: makeFolder },
    { label: 'Upload folder', run: () => page.current.querySelector('.choose-folder').click() },
  ];
}

function Trail({ container, trail }) {
  const parts = [{ name: 'Documents' }, ...trail];
  return html`
    <div class="heading">
      <nav aria-label="Folders above" class="trail">
        <ol>
          ${parts.map((part, index) => html`
            <li key=${index}>
              ${index < parts.length - 1
                ? html`<a href=${folderHref(container, trail.slice(0, index))}>${part.name}</a>`
                : html`<h1 aria-current="page">${part.name}</h1>`}
            </li>`)}
        </ol>
      </nav>
    </div>`;
}

function SearchField({ container, text = '' }) {
  const search = (event) => {
    event.preventDefault();
    const value = new FormData(event.target).get('text').trim();
    if (value) location.hash = pageHref('search', container, value);
  };
  return html`
    <form role="search" class="search" onSubmit=${search}>
      <input type="search" name="text" defaultValue=${text} aria-label="Search all files" placeholder="Search all files" />
    </form>`;
}

// Files and folders may be dropped anywhere on it.
function DropArea({ onDrop, children }) {
  const [depth, setDepth] = useState(0);
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes('Files');
  const change = (difference) => (event) => hasFiles(event) && setDepth((old) => Math.max(0, old + difference));
  const drop = (event) => {
    event.preventDefault();
    setDepth(0);
    if (hasFiles(event)) onDrop(event.dataTransfer);
  };
  return html`
    <div class=${depth ? 'drop-area over' : 'drop-area'} onDragEnter=${change(1)} onDragLeave=${change(-1)}
      onDragOver=${(event) => event.preventDefault()} onDrop=${drop}>
      ${children}
    </div>`;
}

export function SearchPage({ container, text }) {
  const isNarrow = useIsNarrow();
  const found = useData(() => call('files.search', { container, text }), [container, text]);
  const entries = found.data?.entries ?? [];
  const selection = useSelection(entries);
  const columns = [
    { id: 'name', label: 'Name', cell: (entry) => html`<${NameCell} entry=${entry} note=${isNarrow && folderOf(entry)} />` },
    ...(isNarrow ? [] : [
      { id: 'folder', label: 'Folder', cell: folderOf },
      { id: 'size', label: 'Size', cell: sizeText },
      { id: 'modified', label: 'Modified', cell: (entry) => date(entry.modified) },
    ]),
  ];
  const list = { container, merge: found.reload };
  const chosen = selection.selected.map((id) => entries[selection.indexes.get(id)]);
  return html`
    <div class="page files">
      <${Heading}>Search for “${text}”<//>
      <div class="toolbar">
        ${chosen.length > 0 && html`<button type="button" onClick=${() => openEntry(list, chosen[0])}>Open</button>
          <button type="button" disabled=${chosen.some(isFolder)} onClick=${() => downloadAll(list, chosen)}>Download</button>`}
        <a class="button" href=${pageHref('files', container)}>Close search</a>
        <${SearchField} container=${container} text=${text} />
      </div>
      <${Loaded} ...${found}>
        ${() => entries.length === 0
          ? html`<p class="empty">No file or folder has this text in its name.</p>`
          : html`<${Grid} name="found" place=${text} label="Found" rows=${entries} columns=${columns} isNarrow=${isNarrow}
              selection=${selection} onOpen=${(entry) => openEntry(list, entry)} />
            <p class="quiet footer">${counted(entries.length, 'item')}${found.data.more && '. There are more: search for a longer text.'}</p>`}
      <//>
    </div>`;
}
