// The panel of running uploads, and the question about names that exist.

import { html, useState } from './preact.js';
import { Dialog, openDialog } from './dialogs.js';
import { bytes, counted } from './format.js';
import { Check, IconButton } from './parts.js';
import { useStore } from './store.js';
import { cancelUpload, clearFinished, conflicts, pauseUpload, resumeUpload, uploadStore } from './uploads.js';

const shownMax = 30;

conflicts.ask = (upload, options) => openDialog(NameTaken, { name: upload.name, ...options });

function NameTaken({ name, canReplace, isOne, close }) {
  const [forAll, setForAll] = useState(false);
  const choose = (choice) => close({ choice, forAll });
  return html`
    <${Dialog} title="This name exists" close=${() => choose('skip')}>
      <p>“${name}” is in the folder already.
        ${canReplace ? ' If you replace it, the former content stays among its versions.' : ' It is not a file, so it cannot be replaced.'}</p>
      ${!isOne && html`<${Check} label="Do this for all files of this upload" value=${forAll} onValue=${setForAll} />`}
      <div class="buttons">
        <button type="button" onClick=${() => choose('skip')}>Skip</button>
        <button type="button" onClick=${() => choose('both')}>Keep both</button>
        ${canReplace && html`<button type="button" class="primary" onClick=${() => choose('replace')}>Replace</button>`}
      </div>
    <//>`;
}

export function UploadPanel() {
  const { uploads, finished } = useStore(uploadStore);
  const [isFolded, setIsFolded] = useState(false);
  if (uploads.length === 0 && finished === 0) return null;
  const title = uploads.length ? `${counted(uploads.length, 'upload')} to do` : `${counted(finished, 'file')} uploaded`;
  return html`
    <section class="uploads" aria-label="Uploads">
      <header>
        <h2 aria-live="polite">${title}</h2>
        ${uploads.length > 0 && html`
          <button type="button" class="text" aria-expanded=${!isFolded} onClick=${() => setIsFolded(!isFolded)}>
            ${isFolded ? 'Show' : 'Hide'}
          </button>`}
        ${uploads.length === 0 && html`<${IconButton} icon="close" label="Close" onClick=${clearFinished} />`}
      </header>
      ${!isFolded && uploads.length > 0 && html`
        <ul>${uploads.slice(0, shownMax).map((upload) => html`<${Row} key=${upload.number} upload=${upload} />`)}</ul>
        ${uploads.length > shownMax && html`<p class="quiet">and ${counted(uploads.length - shownMax, 'more', 'more')}</p>`}`}
    </section>`;
}

function stateText({ state, sent, size, speed, error }) {
  if (state === 'queued') return `${bytes(size)}, waiting for its turn`;
  if (state === 'failed') return error;
  const percent = size ? Math.floor((sent / size) * 100) : 0;
  const done = `${bytes(sent)} of ${bytes(size)}, ${percent} %`;
  if (state === 'paused') return `${done}, paused`;
  if (state === 'waiting') return `${done}. ${error} It is tried again soon.`;
  return speed ? `${done}, ${bytes(Math.round(speed))}/s` : done;
}

function Row({ upload }) {
  const { state, name, size, sent } = upload;
  const isStopped = state === 'paused' || state === 'failed';
  const resume = state === 'failed' ? 'Try again' : 'Resume';
  return html`
    <li>
      <div class="name">${name}</div>
      <progress max=${size || 1} value=${sent} aria-label=${`Progress of ${name}`}></progress>
      <div class=${state === 'failed' ? 'failure' : 'quiet'}>${stateText(upload)}</div>
      <div class="actions">
        ${isStopped
          ? html`<button type="button" class="text" aria-label=${`${resume} ${name}`} onClick=${() => resumeUpload(upload)}>${resume}</button>`
          : html`<button type="button" class="text" aria-label=${`Pause ${name}`} onClick=${() => pauseUpload(upload)}>Pause</button>`}
        <button type="button" class="text" aria-label=${`Cancel ${name}`} onClick=${() => cancelUpload(upload)}>Cancel</button>
      </div>
    </li>`;
}
