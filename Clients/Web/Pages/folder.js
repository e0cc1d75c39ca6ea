// The entries of an open folder: pages from the server, changes merged into them, and their order.

import { call } from './api.js';
import { collator } from './format.js';

const pageSize = 500;
// A folder up to this size is loaded whole when it is opened, so that it can be sorted.
const wholeSizeMax = 2000;

export const isFolder = (entry) => entry.kind === 'folder';

const comparisons = {
  name: (a, b) => collator.compare(a.name, b.name) || compareBytes(a.name, b.name),
  size: (a, b) => a.size - b.size,
  modified: (a, b) => (a.modified ?? 0) - (b.modified ?? 0),
};

// The server's order, which is that of UTF-8 bytes. UTF-16 differs from it: surrogates stand for the highest characters.
function compareBytes(a, b) {
  const length = Math.min(a.length, b.length);
  for (let index = 0; index < length; index++) {
    const left = a.charCodeAt(index);
    const right = b.charCodeAt(index);
    if (left !== right) return byteRank(left) - byteRank(right);
  }
  return a.length - b.length;
}

const byteRank = (unit) => (unit < 0xd800 ? unit : unit < 0xe000 ? unit + 0x2000 : unit - 0x800);

export class FolderList {
  entries = [];
  trail = [];
  sort = { id: 'name', isDescending: false };
  isLoading = false;
  isOpen = false;

  // `where`: {path: [name]} or {folder: id}. `notify` is called after each change of this list.
  constructor(container, where, notify) {
    Object.assign(this, { container, where, notify });
  }

  async open() {
    await this.#run(async () => {
      const answer = await call('files.list', { container: this.container, ...this.where, limit: pageSize });
      this.#begin(answer);
      if (this.next) this.notify();
      while (this.next && this.entries.length < wholeSizeMax) await this.#page();
    });
  }

  close() {
    this.notify = () => {};
  }

  get isWhole() {
    return this.isOpen && !this.next;
  }

  async more() {
    if (!this.next || this.isLoading) return;
    await this.#run(() => this.#page());
  }

  // Merges the changes of the server.
  async refresh() {
    if (!this.isOpen) return this.open();
    await this.#run(async () => {
      const { container, folder, cursor } = this;
      const answer = await call('files.changes', { container, folder: folder.id, cursor });
      if (answer.all) return this.#again();
      this.cursor = answer.cursor;
      this.merge(answer.changed, answer.gone);
    });
  }

  sortBy(sort) {
    this.sort = sort;
    this.#arrange([...this.entries]);
    this.notify();
  }

  merge(changed = [], gone = []) {
    if (!changed.length && !gone.length) return;
    const news = new Map(changed.map((entry) => [entry.id, entry]));
    const lost = new Set(gone);
    const kept = [];
    for (const entry of this.entries) {
      if (lost.has(entry.id)) continue;
      kept.push(news.get(entry.id) ?? entry);
      news.delete(entry.id);
    }
    kept.push(...news.values());
    this.#arrange(kept);
    this.notify();
  }

  // Runs one call at a time, in the order of their starts.
  #queue = Promise.resolve();
  async #run(action) {
    const turn = this.#queue.then(async () => {
      this.isLoading = true;
      try {
        await action();
        this.error = undefined;
      } catch (error) {
        this.error = error;
      }
      this.isLoading = false;
      this.notify();
    });
    this.#queue = turn;
    await turn;
  }

  #begin(answer) {
    this.folder = answer.folder;
    this.trail = answer.trail;
    this.cursor = answer.cursor;
    this.next = answer.next;
    this.lastName = answer.entries.at(-1)?.name ?? '';
    this.isOpen = true;
    this.#arrange(answer.entries);
  }

  async #page() {
    const { container, folder } = this;
    const answer = await call('files.list', { container, folder: folder.id, after: this.next, limit: pageSize });
    this.next = answer.next;
    this.lastName = answer.entries.at(-1)?.name ?? this.lastName;
    const known = new Set(this.entries.map((entry) => entry.id));
    this.#arrange([...this.entries, ...answer.entries.filter((entry) => !known.has(entry.id))]);
  }

  // Lists as much as was shown before.
  async #again() {
    const count = this.entries.length;
    const { container, folder } = this;
    this.#begin(await call('files.list', { container, folder: folder.id, limit: pageSize }));
    while (this.next && this.entries.length < count) await this.#page();
  }

  // Sorts a whole folder. While pages are missing, the order is the server's, and an entry that belongs to a later page
  // is dropped: the page will bring it.
  #arrange(entries) {
    if (this.next) {
      this.entries = entries
        .filter((entry) => compareBytes(entry.name, this.lastName) <= 0)
        .sort((a, b) => compareBytes(a.name, b.name));
      return;
    }
    const compare = comparisons[this.sort.id];
    const sign = this.sort.isDescending ? -1 : 1;
    this.entries = entries.sort(
      (a, b) => isFolder(b) - isFolder(a) || sign * compare(a, b) || comparisons.name(a, b));
  }
}
