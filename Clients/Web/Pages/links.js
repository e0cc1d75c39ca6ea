// Share links: anyone who has the address can download the file.

import { html, useState } from './preact.js';
import { call } from './api.js';
import { confirmAct, Dialog, FormDialog, openDialog } from './dialogs.js';
import { date } from './format.js';
import { useData } from './live.js';
import { CopyButton, TablePage } from './parts.js';

const day = 86_400_000;
const lifetimes = [['After 1 day', day], ['After 7 days', 7 * day], ['After 30 days', 30 * day]];

// The server may only know its address on its own machine. This page may have been reached by a better one.
const addressForOthers = (url) => {
  const { hostname, pathname } = new URL(url);
  const isBetter = !['localhost', '127.0.0.1'].includes(location.hostname);
  return hostname === 'localhost' && isBetter ? location.origin + pathname : url;
};

export const shareFile = (container, entry) => openDialog(ShareDialog, { container, entry });

function ShareDialog({ container, entry, close }) {
  const [lifetime, setLifetime] = useState(7 * day);
  const [link, setLink] = useState();
  const submit = async () => {
    const made = (await call('files.publish', { container, item: entry.id, expires: lifetime })).link;
    setLink({ ...made, url: addressForOthers(made.url) });
  };
  if (link) {
    return html`
      <${Dialog} title=${`Link to ${entry.name}`} close=${close}>
        <p>Anyone who has this address can download the file. ${link.expires ? `It expires on ${date(link.expires)}.` : 'It does not expire.'}</p>
        <p><code class="address" tabindex="0">${link.url}</code></p>
        <div class="buttons">
          <${CopyButton} text=${link.url} />
          <button type="button" class="primary" onClick=${() => close()}>Done</button>
        </div>
      <//>`;
  }
  return html`
    <${FormDialog} title=${`Share ${entry.name}`} label="Make link" submit=${submit} close=${close}>
      <fieldset>
        <legend>The link expires</legend>
        ${lifetimes.map(([label, time]) => html`
          <label class="check-field">
            <input type="radio" name="lifetime" checked=${lifetime === time} onChange=${() => setLifetime(time)} /> ${label}
          </label>`)}
      </fieldset>
    <//>`;
}

export function LinksPage({ container }) {
  const links = useData(() => call('files.links', { container }), [container]);
  const remove = async (link) => {
    const text = `The address of “${link.name}” stops working. The file stays.`;
    const act = () => call('files.unpublish', { container, link: link.id });
    if (await confirmAct({ title: 'Remove link', label: 'Remove', text, act })) links.reload();
  };
  const columns = [
    { label: 'File', cell: (link) => link.name },
    { label: 'Created', isWide: true, cell: (link) => date(link.created) },
    { label: 'Expires', isWide: true, cell: (link) => date(link.expires) || 'Never' },
  ];
  const actions = (link) => [{ label: 'Remove', run: () => remove(link) }];
  return html`
    <${TablePage} title="Links" none="There are no links." loaded=${links} rowsOf=${(data) => data.links} columns=${columns}
      actions=${actions} note="Anyone who has the address of a link can download the file. An address is shown only once. To make a link, select a file and choose “Share link”." />`;
}
