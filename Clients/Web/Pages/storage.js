// How full the plan is, and what happened to the account.

import { html, useEffect, useState } from './preact.js';
import { call } from './api.js';
import { bytes, counted, date } from './format.js';
import { useData } from './live.js';
import { Failure, Heading, Loaded, Table } from './parts.js';
import { useAction } from './store.js';

const serviceNames = { documents: 'Files', records: 'Records', keyvalue: 'Key-values', identity: 'Account', notifications: 'Notifications' };
const serviceName = (service) => serviceNames[service] ?? service;

export function StoragePage() {
  const storage = useData(() => call('account.storage'), []);
  return html`
    <div class="page">
      <${Heading}>Storage<//>
      <${Loaded} ...${storage}>${(data) => html`<${Plan} ...${data} /><${Services} services=${data.services} />`}<//>
    </div>`;
}

function Plan({ plan, planBytes, usedBytes, silent = [], services }) {
  const share = (count) => (planBytes ? Math.min(100, (count / planBytes) * 100) : 0);
  const text = `${bytes(usedBytes)} of ${bytes(planBytes)} used`;
  return html`
    <p><strong>${text}</strong> <span class="quiet">Plan “${plan}”</span></p>
    <div class="plan" role="meter" aria-label="Plan" aria-valuemin="0" aria-valuemax="100"
      aria-valuenow=${Math.round(share(usedBytes))} aria-valuetext=${text}>
      ${services.filter((service) => service.countsOnPlan).map((service) => html`
        <span key=${service.service} class=${`part part-${service.service}`} style=${{ width: `${share(service.bytes)}%` }}></span>`)}
    </div>
    ${silent.length > 0 && html`<p class="notice">Not answering now: ${silent.map(serviceName).join(', ')}. Their part is missing here.</p>`}`;
}

function Services({ services }) {
  return services.map((service) => html`
    <section key=${service.service}>
      <div class="heading">
        <h2><span class=${`dot part-${service.service}`}></span>${serviceName(service.service)}</h2>
        <span>${bytes(service.bytes)}${!service.countsOnPlan && html` <span class="quiet">(not counted on the plan)</span>`}</span>
      </div>
      ${service.items.length > 0 && html`
        <${Table} caption=${serviceName(service.service)} rows=${service.items} rowKey=${(row) => row.name} columns=${[
          { label: 'Name', cell: (item) => item.name },
          { label: 'Size', isNumber: true, cell: (item) => bytes(item.bytes) },
        ]} />`}
    </section>`);
}

// Sentences of the account's events; each gets the entry's details.
const sentences = {
  'account.created': () => 'Account created',
  'account.locked': () => 'Account locked',
  'account.unlocked': () => 'Account unlocked',
  'password.changed': ({ signed_out: count }) => `Password changed${count ? `, ${counted(Number(count), 'device')} signed out` : ''}`,
  'password.refused': () => 'Password not changed: the current password was wrong',
  'plan.changed': ({ plan, size_bytes: size }) => `Plan changed to ${plan ?? 'another one'}${size ? ` (${bytes(Number(size))})` : ''}`,
  'sign-in': ({ device }) => (device === 'new' ? 'Signed in, a new device' : 'Signed in again'),
  'sign-in.refused': ({ reason }) => `Sign-in refused: ${reason ?? 'unknown reason'}`,
  'sign-in.allowed': () => 'Code made for the sign-in of a new device',
  'sign-out': () => 'Signed out',
  'device.renamed': ({ former_name: former, device }) => `Device ${former ?? ''} renamed to ${device ?? 'another name'}`,
  'device.revoked': ({ device }) => `Device ${device ?? ''} signed out`,
  'app-password.created': ({ name }) => `App password ${name ?? ''} created`,
  'app-password.revoked': ({ name }) => `App password ${name ?? ''} revoked`,
  'token.reused': () => 'Sign-in used at two places; both were signed out',
};

function sentenceOf({ event, details = {} }) {
  if (Object.hasOwn(sentences, event)) return sentences[event](details);
  const values = Object.entries(details).map(([key, value]) => `${key}: ${value}`);
  return [event, ...values].join(', ');
}

const actorOf = (entry) => (entry.byOperator ? 'Operator' : entry.deviceName || 'Unknown device');

export function ActivityPage() {
  const [older, setOlder] = useState();
  const newest = useData(() => call('account.activity'), []);
  const more = useAction(async (before) => {
    const answer = await call('account.activity', { before });
    setOlder((old) => ({ entries: [...(old?.entries ?? []), ...answer.entries], next: answer.next }));
  });
  // New entries push others off the first page; without the older ones again there would be a gap.
  const firstNumber = newest.data?.entries[0]?.number;
  useEffect(() => setOlder(undefined), [firstNumber]);
  const columns = [
    { label: 'Event', cell: (entry) => html`${sentenceOf(entry)}<div class="note narrow-only">${actorOf(entry)}, ${date(entry.time)}</div>` },
    { label: 'Device', isWide: true, cell: actorOf },
    { label: 'Time', isWide: true, cell: (entry) => date(entry.time) },
  ];
  return html`
    <div class="page">
      <${Heading}>Activity<//>
      <${Loaded} ...${newest}>
        ${(data) => {
          const next = older ? older.next : data.next;
          return html`
            <div tabindex="0" role="region" aria-label="Activity">
              <${Table} caption="Activity, newest first" columns=${columns} rows=${[...data.entries, ...(older?.entries ?? [])]} rowKey=${(row) => row.number} />
            </div>
            <${Failure} error=${more.error} />
            ${next && html`<button type="button" disabled=${more.isBusy} onClick=${() => more.run(next)}>Load more</button>`}`;
        }}
      <//>
    </div>`;
}
