// Sync status: is everything on the server, and what is pending, rejected or in conflict.

import { html } from './preact.js';
import { call } from './api.js';
import { clock, counted, date, dateOrClock } from './format.js';
import { useData } from './live.js';
import { attempt, Heading, Loaded } from './parts.js';

const stateNames = { waiting: 'Pending', uploading: 'Uploading', downloading: 'Downloading', paused: 'Paused', refused: 'Rejected', rejected: 'Rejected' };

const serviceNames = { keyvalue: 'Key-values', documents: 'Files', records: 'Records' };

export function StatePage() {
  const state = useData(() => call('state.list'), []);
  return html`
    <div class="page">
      <${Heading}>Sync status<//>
      <${Loaded} ...${state}>
        ${(data) => html`
          <p role="status">${summary(data.scopes)}</p>
          ${data.scopes.map((scope) => html`<${Scope} key=${`${scope.app} ${scope.service} ${scope.name}`} scope=${scope} reload=${state.reload} />`)}`}
      <//>
    </div>`;
}

function summary(scopes) {
  const late = scopes.filter((scope) => !scope.inSync).length;
  return late ? `${counted(late, 'part')} of ${scopes.length} not in sync.` : 'Everything is in sync.';
}

function Scope({ scope, reload }) {
  const { app, service, name, title, inSync, isConnected, fetched, problem, pending, rejected, conflicts } = scope;
  const dismiss = async () => {
    await call('state.dismiss', { app, service, name });
    reload();
  };
  return html`
    <section class="card">
      <div class="heading">
        <h2>${[serviceNames[service] ?? service, title, app].filter(Boolean).join(', ')}</h2>
        <span class=${inSync ? 'badge good' : 'badge'}>${inSync ? 'In sync' : 'Not in sync'}</span>
      </div>
      <p class="quiet">${isConnected ? 'Connected' : 'Not connected'}${fetched && `, last fetched ${dateOrClock(fetched)}`}</p>
      ${problem && html`<p class="failure">${problem}</p>`}
      ${conflicts > 0 && html`<p>${counted(conflicts, 'conflict')}.${service === 'documents' && html` <a href=${`#/conflicts/${encodeURIComponent(name)}`}>Show conflicts</a>`}</p>`}
      ${pending.length > 0 && html`<h3>Pending</h3><ul class="plain">${pending.map((item) => html`<${Pending} item=${item} />`)}</ul>`}
      ${rejected.length > 0 && html`
        <h3>Rejected</h3>
        <ul class="plain">
          ${rejected.map((item) => html`
            <li><strong>${item.name}</strong><div>${item.message}</div>${item.time && html`<div class="note">${date(item.time)}</div>`}</li>`)}
        </ul>
        <button type="button" onClick=${() => attempt(dismiss)}>Dismiss rejected changes</button>`}
    </section>`;
}

function Pending({ item }) {
  const { names, state, reason, attempts, since, nextAttempt } = item;
  const facts = [
    stateNames[state] ?? state,
    since && `since ${dateOrClock(since)}`,
    attempts > 0 && counted(attempts, 'attempt'),
    nextAttempt && `next attempt at ${clock(nextAttempt)}`,
  ];
  return html`
    <li><strong>${names.join(', ')}</strong>${reason && html`<div>${reason}</div>`}<div class="note">${facts.filter(Boolean).join(', ')}</div></li>`;
}
