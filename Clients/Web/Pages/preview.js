// A look into a file: pictures, the beginning of texts, PDF.

import { html, useEffect, useState } from './preact.js';
import { contentAddress, fetchContent, sentence } from './api.js';
import { bytes, splitName } from './format.js';

const textMax = 256 * 1024;
const blobMax = 50_000_000;

const pictures = {
  png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp', avif: 'image/avif',
};
const pictureTypes = new Set(Object.values(pictures));
const textExtensions = new Set(
  ('txt md csv tsv log json xml yaml yml toml ini conf cfg html htm css js mjs ts swift c h cc cpp hpp m java kt go rs py ' +
    'rb pl php sh bash zsh fish sql tex bib srt vcf ics eml svg plist diff patch gitignore').split(' '));
const kinds = { zip: 'a ZIP archive', mp4: 'a film', mov: 'a film', mp3: 'music', m4a: 'music', wav: 'a sound' };

// 'text', or the media type of a picture or PDF; undefined: not shown.
function shownType({ name, type = '' }) {
  const extension = splitName(name)[1].slice(1).toLowerCase();
  if (pictureTypes.has(type)) return type;
  if (type === 'application/pdf' || extension === 'pdf') return 'application/pdf';
  if (pictures[extension]) return pictures[extension];
  if (type.startsWith('text/') || type === 'application/json' || textExtensions.has(extension)) return 'text';
  return undefined;
}

function describe({ name, type, kind }) {
  if (kind === 'link') return 'This is a symbolic link.';
  if (kind === 'package') return 'This is a package: a folder that is one document.';
  const extension = splitName(name)[1].slice(1).toLowerCase();
  return `This is ${kinds[extension] ?? (type || 'a file of an unknown type')}. The page cannot show it.`;
}

async function load(entry, address, signal) {
  const type = entry.kind === 'file' ? shownType(entry) : undefined;
  if (!type) return { note: describe(entry) };
  if (type === 'text') {
    if (entry.size === 0) return { text: '' };
    const response = await fetchContent(address, { bytesMax: textMax, signal });
    const content = (await response.arrayBuffer()).slice(0, textMax);
    const text = new TextDecoder().decode(content);
    if (text.includes('\0')) return { note: 'This file is not a text.' };
    return { text, isCut: entry.size > textMax };
  }
  if (entry.size > blobMax) return { note: `Files above ${bytes(blobMax)} are not shown. Download it to see it.` };
  const response = await fetchContent(address, { signal });
  return { type, url: URL.createObjectURL(new Blob([await response.arrayBuffer()], { type })) };
}

export function Preview({ container, entry, version }) {
  const [shown, setShown] = useState();
  useEffect(() => {
    const abort = new AbortController();
    let url;
    setShown(undefined);
    load(entry, contentAddress(container, entry.id, version), abort.signal)
      .then((result) => {
        url = result.url;
        if (abort.signal.aborted) return URL.revokeObjectURL(url);
        setShown(result);
      })
      .catch((error) => abort.signal.aborted || setShown({ note: sentence(error) }));
    return () => {
      abort.abort();
      if (url) URL.revokeObjectURL(url);
    };
  }, [container, entry.id, version]);

  const broken = () => setShown({ note: 'The picture cannot be shown.' });
  return html`
    <div class="preview">
      ${!shown ? html`<p class="quiet">Loading</p>`
        : shown.note ? html`<p class="quiet">${shown.note}</p>`
        : shown.url && shown.type === 'application/pdf' ? html`<iframe src=${shown.url} title=${entry.name}></iframe>`
        : shown.url ? html`<img src=${shown.url} alt=${entry.name} onError=${broken} />`
        : html`<pre tabindex="0" aria-label=${`Text of ${entry.name}`}>${shown.text}</pre>
            ${shown.isCut && html`<p class="quiet">The first ${bytes(textMax)} are shown.</p>`}`}
    </div>`;
}
