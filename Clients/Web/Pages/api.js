// Calls to the server. Each failure is a CallError with a message for people.

export class CallError extends Error {
  constructor(code, message, details = {}, retryAfter = 0) {
    super(message);
    this.code = code;
    this.details = details;
    this.retryAfter = retryAfter;
  }

  // The same request may succeed later.
  get isTemporary() {
    return this.code === 'unreachable' || this.retryAfter > 0;
  }
}

// The sentence for any thrown value; never a raw exception.
export const sentence = (error) =>
  error instanceof CallError ? error.message : 'Something went wrong on this page. Reload it.';

const unreachable = () => new CallError('unreachable', 'The server cannot be reached. Check the connection.');
const unexpected = () => new CallError('internalError', 'The server gave an unexpected answer.');

// Ends of the sign-in. The shell replaces this function.
export const signIn = { onEnd: () => {} };

// Which device this page is for. The browser's cookie may be another account's by now: then the server answers as if nobody
// were signed in.
let page = '1';
export const setPage = (session) => {
  page = session?.device?.id || '1';
};

const signInEnds = new Set(['notSignedIn', 'deviceRevoked']);

function errorFrom(status, body) {
  const { code, message, details, retryAfter } = body?.error ?? {};
  if (!code) {
    return status >= 500 ? new CallError('unreachable', `The server cannot answer now (${status}).`) : unexpected();
  }
  const error = new CallError(code, message || 'The server refused this.', details, retryAfter);
  if (signInEnds.has(code)) signIn.onEnd(error);
  return error;
}

export async function call(name, body = {}) {
  let response;
  try {
    response = await fetch(`/api/${name}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-Nephos': page },
      body: JSON.stringify(body),
    });
  } catch {
    throw unreachable();
  }
  let answer;
  try {
    answer = await response.json();
  } catch {
    answer = null;
  }
  if (!response.ok) throw errorFrom(response.status, answer);
  if (answer === null) throw unexpected();
  return answer;
}

export function contentAddress(container, item, version) {
  const query = new URLSearchParams({ container, item });
  if (version) query.set('version', version);
  return `/api/content?${query}`;
}

// The browser saves the content as a file.
export function download(address, name) {
  const link = Object.assign(document.createElement('a'), { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}

// At most `bytesMax` bytes from the start, as a Response.
export async function fetchContent(address, { bytesMax, signal } = {}) {
  const headers = bytesMax ? { Range: `bytes=0-${bytesMax - 1}` } : {};
  let response;
  try {
    response = await fetch(address, { headers, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unreachable();
  }
  // 416: the file is empty.
  if (response.status === 416) return new Response('');
  if (!response.ok) throw errorFrom(response.status, await response.json().catch(() => null));
  return response;
}

// Sends a piece of a file. XMLHttpRequest, since fetch reports no progress of uploads.
export function sendPiece(upload, offset, piece, { signal, onProgress }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const abort = () => request.abort();
    signal.addEventListener('abort', abort);
    request.open('PUT', `/api/upload?${new URLSearchParams({ id: upload, offset })}`);
    request.setRequestHeader('X-Nephos', page);
    request.responseType = 'json';
    request.upload.onprogress = (event) => onProgress(event.loaded);
    request.onloadend = () => {
      signal.removeEventListener('abort', abort);
      const { status, response } = request;
      if (status === 0) return reject(unreachable());
      if (status >= 400) return reject(errorFrom(status, response));
      if (typeof response?.offset !== 'number') return reject(unexpected());
      resolve(response.offset);
    };
    request.send(piece);
  });
}
