// Addresses of the pages: the part after "#".

const encode = (parts) => `#/${parts.map(encodeURIComponent).join('/')}`;

export const pageHref = (page, ...parts) => encode([page, ...parts]);

// A folder by its names. U+FFFD stands for bytes that are no text: then the folder is opened by its id.
export function folderHref(container, trail) {
  const names = trail.map((folder) => folder.name);
  if (names.some((name) => name.includes('\ufffd'))) return encode(['folder', container, trail.at(-1).id]);
  return encode(['files', container, ...names]);
}

export function parseRoute(hash) {
  const parts = hash.replace(/^#?\/?/, '').split('/').filter(Boolean).map(decode);
  const [page = 'files', container, ...path] = parts;
  return { page, container, path };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
