// Uploads: a queue that sends files in pieces, two at a time. It lives longer than the page that began them.

import { call, CallError, sendPiece, sentence } from './api.js';
import { freeName } from './format.js';
import { createStore } from './store.js';

const parallelMax = 2;
const pieceSize = 8 * 1024 * 1024;
const waitMax = 60_000;

// States: 'queued', 'sending', 'waiting' (for the network), 'paused', 'failed'. Finished uploads leave the list.
const uploads = [];
export const uploadStore = createStore({ uploads, finished: 0 });

// Asks {upload, isOne} -> {choice: 'replace' | 'both' | 'skip', forAll}. The panel sets this function.
export const conflicts = { ask: async () => undefined };

let number = 0;
let finished = 0;
let updateTimer;

// Progress comes often; the panel is drawn ten times a second.
function changed() {
  updateTimer ??= setTimeout(() => {
    updateTimer = undefined;
    uploadStore.set({ uploads: [...uploads], finished });
  }, 100);
}

const isActive = (upload) => upload.state === 'sending' || upload.state === 'waiting';
export const isUploading = () => uploads.some((upload) => isActive(upload) || upload.state === 'queued');

// `names`: the names of the folder that are known, with their entries.
export function addUpload({ container, folder, names, file, choices, onFinish }) {
  const key = JSON.stringify([container, folder, file.name, file.size, file.lastModified]);
  uploads.push({
    number: ++number, container, folder, names, file, choices, onFinish,
    // Another file with the same name, size and date is an upload of its own.
    key: uploads.some((other) => other.key === key) ? `${key} ${number}` : key,
    name: file.name.normalize('NFC'), size: file.size, sent: 0, speed: 0, state: 'queued',
  });
  startNext();
}

export function pauseUpload(upload) {
  upload.state = 'paused';
  upload.abort?.abort();
  startNext();
}

export function resumeUpload(upload) {
  upload.state = 'queued';
  upload.error = undefined;
  startNext();
}

export function cancelUpload(upload) {
  remove(upload);
  upload.abort?.abort();
  if (upload.id) call('upload.cancel', { upload: upload.id }).catch(() => {});
  startNext();
}

// The sign-in is over, or another account's. The server removes the pieces with a sign-in that has ended.
export function dropUploads() {
  for (const upload of uploads.splice(0)) upload.abort?.abort();
  finished = 0;
  changed();
}

export function clearFinished() {
  finished = 0;
  changed();
}

function remove(upload) {
  const index = uploads.indexOf(upload);
  if (index >= 0) uploads.splice(index, 1);
}

function startNext() {
  let room = parallelMax - uploads.filter(isActive).length;
  for (const upload of uploads) {
    if (room <= 0) break;
    if (upload.state !== 'queued') continue;
    room -= 1;
    run(upload);
  }
  changed();
}

async function run(upload) {
  const abort = new AbortController();
  upload.abort = abort;
  upload.state = 'sending';
  try {
    const entry = (await chooseName(upload, abort)) && (await sendWithRetries(upload, abort));
    abort.signal.throwIfAborted();
    remove(upload);
    if (entry) {
      finished += 1;
      upload.names.set(entry.name, entry);
      upload.onFinish(entry);
    }
  } catch (error) {
    // An abort has set the state already.
    if (!abort.signal.aborted) Object.assign(upload, { state: 'failed', error: sentence(error) });
  }
  startNext();
}

// Returns false if the file is skipped.
async function chooseName(upload, abort) {
  const existing = upload.names.get(upload.name);
  if (!existing || upload.replaces) return true;
  return applyChoice(upload, existing.kind === 'file' ? existing.version : undefined, abort);
}

// A name is taken: asks, or does what was chosen for all. `version`: of the file that can be replaced.
async function applyChoice(upload, version, abort) {
  const { choices, names } = upload;
  // One question at a time.
  const turn = (choices.turn ?? Promise.resolve()).then(async () => {
    const choice = choices.forAll ?? (await conflicts.ask(upload, { canReplace: Boolean(version), isOne: choices.isOne }));
    if (choice?.forAll) choices.forAll = choice;
    return choice?.choice ?? 'skip';
  });
  choices.turn = turn.catch(() => {});
  const choice = await turn;
  abort.signal.throwIfAborted();
  if (choice === 'skip') return false;
  if (choice === 'replace' && version) upload.replaces = version;
  else upload.name = freeName(upload.name, (name) => names.has(name));
  return true;
}

// After a failure that is temporary, it waits, and asks the server how far it has got.
async function sendWithRetries(upload, abort) {
  for (let wait = 1000; ; wait = Math.min(wait * 2, waitMax)) {
    const before = upload.sent;
    try {
      return await send(upload, abort);
    } catch (error) {
      abort.signal.throwIfAborted();
      if (!(error instanceof CallError) || !error.isTemporary) throw error;
      await checkReadable(upload.file);
      if (upload.sent > before) wait = 1000;
      const pause = Math.max(wait * (0.75 + Math.random() / 2), error.retryAfter * 1000);
      Object.assign(upload, { state: 'waiting', error: error.message, speed: 0 });
      changed();
      await delay(pause, abort.signal);
      Object.assign(upload, { state: 'sending', error: undefined });
    }
  }
}

async function send(upload, abort) {
  const { name } = upload;
  try {
    if (upload.offset !== upload.size) await begin(upload, abort);
    await sendPieces(upload, abort);
    // If its answer is lost, the same call gives it again.
    const { entry } = await call('upload.finish', { upload: upload.id, name, replaces: upload.replaces });
    return entry;
  } catch (error) {
    if (!(error instanceof CallError) || error.isTemporary) throw error;
    // The server removed it, or another page goes on with it: the next attempt begins it again.
    if (error.code === 'unknownItem') upload.offset = undefined;
    if (error.details?.offset !== undefined) upload.offset = Number(error.details.offset);
    if (error.code !== 'alreadyExists') throw error;
    // Another device has made the file meanwhile. What was sent is kept for another name.
    upload.replaces = undefined;
    upload.names.set(name, { name, kind: 'file', version: error.details.version });
    if (!(await applyChoice(upload, error.details.version, abort))) {
      call('upload.cancel', { upload: upload.id }).catch(() => {});
      return undefined;
    }
    return send(upload, abort);
  }
}

// Begins it, or asks how much the server has.
async function begin(upload, abort) {
  const { container, folder, name, size, key, file } = upload;
  const body = { container, folder, name, size, modified: file.lastModified, key };
  let begun = await call('upload.begin', { ...body, upload: upload.id });
  if (begun.upload !== upload.id && begun.offset > 0 && (await digest(file, begun.offset, abort)) !== begun.digest) {
    begun = await call('upload.begin', { ...body, again: true });
  }
  upload.id = begun.upload;
  upload.offset = begun.offset;
}

// SHA-256 of the SHA-256 of each piece, as the server computes it of the bytes that it has. Undefined: this page's address is
// not encrypted, so the browser computes none.
async function digest(file, end, abort) {
  if (!globalThis.crypto?.subtle) return undefined;
  const hash = (data) => crypto.subtle.digest('SHA-256', data);
  const hashes = [];
  for (let offset = 0; offset < end; offset += pieceSize) {
    abort.signal.throwIfAborted();
    const piece = file.slice(offset, Math.min(offset + pieceSize, end));
    hashes.push(new Uint8Array(await hash(await read(piece))));
  }
  const whole = new Uint8Array(await hash(await new Blob(hashes).arrayBuffer()));
  return Array.from(whole, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

async function sendPieces(upload, abort) {
  const { file, size } = upload;
  const meter = speedMeter(upload.offset);
  while (upload.offset < size) {
    abort.signal.throwIfAborted();
    const begin = upload.offset;
    const onProgress = (loaded) => {
      upload.sent = Math.min(begin + loaded, size);
      upload.speed = meter(upload.sent);
      changed();
    };
    onProgress(0);
    try {
      upload.offset = await sendPiece(upload.id, begin, file.slice(begin, begin + pieceSize), { signal: abort.signal, onProgress });
    } catch (error) {
      const known = Number(error.details?.offset);
      // The server has another part of the file than this page thought.
      if (abort.signal.aborted || error.details?.offset === undefined || known === begin) throw error;
      upload.offset = known;
    }
  }
  upload.sent = size;
}

// Bytes in a second, over about the last three.
function speedMeter(sent) {
  const samples = [{ time: Date.now(), sent }];
  return (now) => {
    samples.push({ time: Date.now(), sent: now });
    while (samples.length > 2 && samples.at(-1).time - samples[0].time > 3000) samples.shift();
    const elapsed = samples.at(-1).time - samples[0].time;
    return elapsed > 250 ? Math.max(0, ((now - samples[0].sent) / elapsed) * 1000) : 0;
  };
}

// A file that was removed looks like a network failure; a retry would never end.
const checkReadable = (file) => read(file.slice(0, 1));

async function read(piece) {
  try {
    return await piece.arrayBuffer();
  } catch {
    throw new CallError('fileUnreadable', 'The file cannot be read any more. Choose it again.');
  }
}

// Ends early when the network comes back.
function delay(time, signal) {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener('online', end);
      signal.removeEventListener('abort', end);
      if (signal.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(end, time);
    addEventListener('online', end);
    signal.addEventListener('abort', end);
  });
}

addEventListener('beforeunload', (event) => {
  if (isUploading()) event.preventDefault();
});
