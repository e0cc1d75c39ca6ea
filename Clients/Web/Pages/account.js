// The account: devices, app passwords, the password.

import { html, useState } from './preact.js';
import { call, CallError } from './api.js';
import { askName, confirmAct, Dialog, FormDialog, openDialog } from './dialogs.js';
import { date } from './format.js';
import { useData } from './live.js';
import { Check, CopyButton, Field, Heading, Loaded, showToast, Table } from './parts.js';

export function DevicesPage({ session }) {
  return html`
    <div class="page">
      <${Heading} actions=${!session.local && html`<button type="button" onClick=${() => openDialog(PasswordDialog, session)}>Change password</button>`}>Devices<//>
      <${Devices} isLocal=${session.local} />
      ${!session.local && html`<${AppPasswords} session=${session} />`}
    </div>`;
}

function Devices({ isLocal }) {
  const devices = useData(() => call('account.devices'), []);
  const rename = async (device) => {
    const submit = (name) => call('account.renameDevice', { device: device.id, name });
    if (await askName({ title: 'Rename device', label: 'Rename', name: device.name, submit })) devices.reload();
  };
  const signOut = async (device) => {
    const text = `“${device.name}” will be signed out within seconds. Changes that it has not sent stay on it.`;
    const act = () => call('account.revokeDevice', { device: device.id });
    if (!(await confirmAct({ title: 'Sign out device', label: 'Sign out', text, act }))) return;
    showToast(`“${device.name}” is signed out`);
    devices.reload();
  };
  const kind = (device) =>
    device.appPassword ? `App password: ${device.appPassword}` : [device.model, device.platform].filter(Boolean).join(', ');
  const columns = [
    {
      label: 'Name',
      cell: (device) => html`
        ${device.name} ${device.isThis && html`<span class="badge this">This ${isLocal ? 'device' : 'browser'}</span>`}
        ${device.isRevoked && html`<span class="badge quiet">Signed out</span>`}
        <div class="note narrow-only">${kind(device)}, seen ${date(device.lastSeen)}</div>`,
    },
    { label: 'Kind', isWide: true, cell: kind },
    { label: 'First sign-in', isWide: true, cell: (device) => date(device.enrolled) },
    { label: 'Last seen', isWide: true, cell: (device) => date(device.lastSeen) },
  ];
  const actions = (device) => [
    !device.isRevoked && { label: 'Rename', run: () => rename(device) },
    !device.isRevoked && !device.isThis && { label: 'Sign out', run: () => signOut(device) },
  ];
  return html`
    <${Loaded} ...${devices}>
      ${(data) => html`<${Table} caption="Devices" columns=${columns} rows=${data.devices} actions=${actions} />`}
    <//>`;
}

function AppPasswords({ session }) {
  const passwords = useData(() => call('account.appPasswords'), []);
  const create = async () => {
    let made;
    const submit = async (name) => {
      made = await call('account.createAppPassword', { name });
    };
    const hint = 'The program that will use it, such as “phone” or “backup”';
    if (!(await askName({ title: 'New app password', label: 'Create', hint, submit }))) return;
    passwords.reload();
    openDialog(Secret, { session, name: made.password.name, secret: made.secret });
  };
  const revoke = async (password) => {
    const text = `Programs that use “${password.name}” are signed out within seconds.`;
    const act = () => call('account.revokeAppPassword', { id: password.id });
    if (await confirmAct({ title: 'Revoke app password', label: 'Revoke', text, act })) passwords.reload();
  };
  const used = (password) => (password.lastUsed ? date(password.lastUsed) : 'Never');
  const columns = [
    { label: 'Name', cell: (password) => html`${password.name}<div class="note narrow-only">Last used: ${used(password)}</div>` },
    { label: 'Created', isWide: true, cell: (password) => date(password.created) },
    { label: 'Last used', isWide: true, cell: used },
  ];
  return html`
    <div class="heading"><h2>App passwords</h2><button type="button" onClick=${create}>New app password</button></div>
    <p class="quiet">A program that knows nothing of Nephos reaches your files by WebDAV. It gets a password of its own, and never the account's.</p>
    <${Loaded} ...${passwords}>
      ${(data) => data.passwords.length > 0 && html`<${Table} caption="App passwords" columns=${columns} rows=${data.passwords}
        actions=${(password) => [{ label: 'Revoke', run: () => revoke(password) }]} />`}
    <//>`;
}

function Secret({ session, name, secret, close }) {
  return html`
    <${Dialog} title=${`App password “${name}”`} close=${close}>
      <p>Enter this in the program. The password is shown only now; if you lose it, create another one.</p>
      <dl>
        <dt>Address</dt><dd><code>${`${location.origin}/dav/${session.containers[0] ?? 'default'}/`}</code></dd>
        <dt>Name</dt><dd><code>${session.account}</code></dd>
        <dt>Password</dt><dd><code class="secret">${secret}</code></dd>
      </dl>
      <div class="buttons">
        <${CopyButton} text=${secret} label="Copy password" />
        <button type="button" class="primary" onClick=${() => close()}>Done</button>
      </div>
    <//>`;
}

function PasswordDialog({ account, close }) {
  const [old, setOld] = useState('');
  const [next, setNext] = useState('');
  const [again, setAgain] = useState('');
  const [signOutOthers, setSignOutOthers] = useState(false);
  const submit = async () => {
    if (next !== again) throw new CallError('invalidArguments', 'The two new passwords differ.');
    await call('account.changePassword', { old, new: next, signOutOthers });
    close(true);
    showToast(signOutOthers ? 'The password is changed. All other devices are signed out.' : 'The password is changed');
  };
  return html`
    <${FormDialog} title="Change password" label="Change password" submit=${submit} close=${close}>
      <input hidden autocomplete="username" value=${account} />
      <${Field} label="Current password" type="password" autocomplete="current-password" value=${old} onValue=${setOld} required />
      <${Field} label="New password" type="password" autocomplete="new-password" value=${next} onValue=${setNext} required />
      <${Field} label="New password, again" type="password" autocomplete="new-password" value=${again} onValue=${setAgain} required />
      <${Check} label="Sign out all other devices, and revoke all app passwords" value=${signOutOthers} onValue=${setSignOutOthers} />
    <//>`;
}
