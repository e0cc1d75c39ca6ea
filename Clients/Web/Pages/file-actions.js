// Acts on files: open, download, rename, move, copy, delete. `list` has {container, merge(changed, gone)}.

import { call, CallError, contentAddress, download, sentence } from './api.js';
import { openDetails } from './details.js';
import { askName } from './dialogs.js';
import { chooseFolder } from './folder-chooser.js';
import { isFolder } from './folder.js';
import { counted, freeName, itemsText } from './format.js';
import { shareFile } from './links.js';
import { attempt, showToast } from './parts.js';
import { folderHref, pageHref } from './routes.js';

const trashMax = 500;

export function openEntry(list, entry) {
  if (!isFolder(entry)) return openDetails(list, entry);
  location.hash = list.trail
    ? folderHref(list.container, [...list.trail, entry])
    : pageHref('folder', list.container, entry.id);
}

export function fileActions(list, entries, selection) {
  const [entry] = entries;
  const isOne = entries.length === 1;
  const isFile = isOne && entry.kind === 'file';
  const hasOthers = entries.some((item) => item.kind !== 'file');
  return [
    { label: 'Open', run: () => openEntry(list, entry), isDisabled: !isOne },
    { label: 'Download', run: () => downloadAll(list, entries), isDisabled: hasOthers, hint: hasOthers ? 'Only files can be downloaded' : undefined },
    { label: 'Rename', run: () => rename(list, entry), isDisabled: !isOne },
    { label: 'Move', run: () => moveAll(list, entries) },
    { label: 'Copy', run: () => copyAll(list, entries) },
    { label: 'Versions', run: () => openDetails(list, entry), isDisabled: !isFile },
    { label: 'Share link', run: () => shareFile(list.container, entry), isDisabled: !isFile },
    { label: 'Delete', run: () => trashEntries(list, entries, selection), isDangerous: true },
  ];
}

export async function downloadAll(list, entries) {
  for (const entry of entries) {
    download(contentAddress(list.container, entry.id), entry.name);
    // Browsers drop downloads that begin at the same moment.
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}

function rename(list, entry) {
  return askName({
    title: 'Rename',
    label: 'Rename',
    name: entry.name,
    submit: async (name) => {
      if (name === entry.name) return;
      const folder = list.folder.id;
      const answer = await call('files.move', { container: list.container, item: entry.id, folder, name });
      list.merge([answer.entry]);
    },
  });
}

async function moveAll(list, entries) {
  const target = await chooseFolder({ list, entries, label: 'Move here', title: `Move ${itemsText(entries)}` });
  if (!target || target.id === list.folder.id) return;
  const { done, failures } = await each(entries, (entry) =>
    call('files.move', { container: list.container, item: entry.id, folder: target.id }));
  list.merge([], done.map((entry) => entry.id));
  report('moved', target, done, failures, async () => {
    for (const entry of done) await call('files.move', { container: list.container, item: entry.id, folder: list.folder.id });
    list.refresh();
  });
}

async function copyAll(list, entries) {
  const target = await chooseFolder({ list, entries, label: 'Copy here', title: `Copy ${itemsText(entries)}` });
  if (!target) return;
  const { done, failures } = await each(entries, (entry) => copyOne(list.container, entry, target.id));
  if (target.id === list.folder.id) list.refresh();
  report('copied', target, done, failures);
}

// A copy whose name is taken gets a number.
async function copyOne(container, entry, folder) {
  const taken = new Set();
  let name = entry.name;
  for (;;) {
    try {
      return await call('files.copy', { container, item: entry.id, folder, name });
    } catch (error) {
      if (error.code !== 'alreadyExists' || taken.size >= 50) throw error;
      taken.add(name);
      name = freeName(entry.name, (other) => taken.has(other));
    }
  }
}

// Does an act for each entry; a failure does not stop the others.
async function each(entries, act) {
  const done = [];
  const failures = [];
  for (const entry of entries) {
    try {
      await act(entry);
      done.push(entry);
    } catch (error) {
      failures.push({ entry, error });
      // Without a connection or a sign-in, the rest would fail as well.
      if (!(error instanceof CallError) || error.isTemporary || error.code === 'notSignedIn') break;
    }
  }
  return { done, failures };
}

function report(verb, target, done, failures, undo) {
  if (done.length) {
    showToast(`${itemsText(done)} ${verb} to “${target.name}”`, {
      action: undo && { label: 'Undo', run: undo },
    });
  }
  if (failures.length) {
    const [{ entry, error }] = failures;
    const others = failures.length > 1 ? ` The same holds for ${counted(failures.length - 1, 'other item')}.` : '';
    showToast(`“${entry.name}” was not ${verb}. ${sentence(error)}${others}`, { isFailure: true });
  }
}

export async function trashEntries(list, entries, selection) {
  const { container } = list;
  const ids = entries.map((entry) => entry.id);
  const at = selection.indexes.get(ids[0]);
  const batches = [];
  await attempt(async () => {
    for (let begin = 0; begin < ids.length; begin += trashMax) {
      const items = ids.slice(begin, begin + trashMax);
      const answer = await call('files.trash', { container, items });
      batches.push(...answer.batches);
      list.merge([], items);
    }
  });
  if (batches.length === 0) return;
  selection.set({ ids: new Set(), active: list.entries[Math.min(at, list.entries.length - 1)]?.id });
  const undo = async () => {
    for (const batch of batches) {
      await call('files.restore', { container, batch });
    }
    list.refresh();
  };
  showToast(`${itemsText(entries)} moved to the trash`, { action: { label: 'Undo', run: undo } });
}
