// Files and folders that were dropped or chosen, and the folders that are made for them.

import { call, CallError } from './api.js';
import { addUpload } from './uploads.js';
import { showFailure, showToast } from './parts.js';

// Gives [{file, path: [folder names]}]. The items must be read before the first wait: they end with the event.
export async function filesOfDrop(transfer) {
  const roots = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const found = [];
  for (const root of roots) await walk(root, [], found);
  return found;
}

export function filesOfInput(input) {
  return [...input.files].map((file) => ({ file, path: file.webkitRelativePath.split('/').slice(0, -1) }));
}

async function walk(entry, path, found) {
  if (entry.isFile) {
    found.push({ file: await new Promise((resolve, reject) => entry.file(resolve, reject)), path });
    return;
  }
  const inside = [...path, entry.name];
  found.push({ path: inside });
  const reader = entry.createReader();
  // A reader gives about a hundred entries a time.
  for (;;) {
    const entries = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (entries.length === 0) return;
    for (const child of entries) await walk(child, inside, found);
  }
}

// `list`: the FolderList that the files go to. `reading`: the files, or a promise of them.
export async function uploadInto(list, reading) {
  const names = new Map(list.entries.map((entry) => [entry.name, entry]));
  const trail = list.trail.map((folder) => folder.name);
  const folders = new Map([['', { id: list.folder.id, path: trail, names }]]);
  try {
    const found = await reading;
    const choices = { isOne: found.filter((item) => item.file).length === 1 };
    for (const { file, path } of found) {
      const target = await folderAt(list.container, path, folders);
      if (!file) continue;
      const onFinish = (entry) => target.id === list.folder.id && list.merge([entry]);
      addUpload({ container: list.container, folder: target.id, names: target.names, file, choices, onFinish });
    }
  } catch (error) {
    if (error instanceof CallError) showFailure(error);
    else showToast('Some of these files cannot be read.', { isFailure: true });
  }
}

// Makes the folder, or finds the one that exists.
async function folderAt(container, path, folders) {
  const key = path.join('/');
  if (folders.has(key)) return folders.get(key);
  const parent = await folderAt(container, path.slice(0, -1), folders);
  const name = path.at(-1).normalize('NFC');
  const made = { path: [...parent.path, name], names: new Map() };
  try {
    made.id = (await call('files.makeFolder', { container, folder: parent.id, name })).entry.id;
  } catch (error) {
    if (error.code !== 'alreadyExists') throw error;
    const { folder, entries } = await call('files.list', { container, path: made.path, limit: 500 });
    made.id = folder.id;
    for (const entry of entries) made.names.set(entry.name, entry);
  }
  folders.set(key, made);
  return made;
}
