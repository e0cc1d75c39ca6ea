// A dialog that chooses a folder.

import { html, useEffect, useMemo, useRef, useState } from './preact.js';
import { Dialog, openDialog } from './dialogs.js';
import { FolderList, isFolder } from './folder.js';
import { Icon } from './icons.js';
import { Loaded } from './parts.js';
import { useUpdate } from './store.js';

// Gives the folder {id, name}, or undefined. `entries` cannot be chosen: no folder can be moved into itself.
export function chooseFolder({ list, entries, title, label }) {
  return openDialog(FolderChooser, { list, entries, title, label });
}

function FolderChooser({ list, entries, title, label, close }) {
  const { container } = list;
  // The top is opened without an id.
  const [id, setID] = useState(list.folder.id);
  const update = useUpdate();
  const folder = useMemo(() => new FolderList(container, id ? { folder: id } : {}, update), [id]);
  const element = useRef();
  useEffect(() => {
    folder.open().then(() => element.current?.querySelector('button')?.focus());
    return () => folder.close();
  }, [folder]);
  const excluded = new Set(entries.map((entry) => entry.id));
  const folders = folder.entries.filter((entry) => isFolder(entry) && !excluded.has(entry.id));
  const trail = [{ name: 'Documents' }, ...folder.trail];

  return html`
    <${Dialog} title=${title} close=${close}>
      <nav class="trail" aria-label="Folders above">
        <ol>
          ${trail.slice(0, -1).map((part) => html`<li><button type="button" class="text" onClick=${() => setID(part.id)}>${part.name}</button></li>`)}
          <li><strong aria-current="true">${trail.at(-1).name}</strong></li>
        </ol>
      </nav>
      <${Loaded} data=${folder.isOpen || undefined} error=${folder.error} reload=${() => folder.open()}>
        ${() => html`
          <ul class="folders" ref=${element}>
            ${folders.map((entry) => html`
              <li key=${entry.id}><button type="button" onClick=${() => setID(entry.id)}><${Icon} name="folder" />${entry.name}</button></li>`)}
          </ul>
          ${folders.length === 0 && folder.isWhole && html`<p class="quiet">No folders in here.</p>`}
          ${!folder.isWhole && html`<button type="button" class="text" onClick=${() => folder.more()}>Look for more folders</button>`}`}
      <//>
      <div class="buttons">
        <button type="button" onClick=${() => close()}>Cancel</button>
        <button type="button" class="primary" disabled=${!folder.isOpen}
          onClick=${() => close({ id: folder.folder.id, name: trail.at(-1).name })}>${label}</button>
      </div>
    <//>`;
}
