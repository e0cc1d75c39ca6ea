// The sign-in.

import { html, useEffect, useRef, useState } from './preact.js';
import { call } from './api.js';
import { Check, Failure, Field } from './parts.js';
import { useAction } from './store.js';

const isSafe = location.protocol === 'https:' || ['localhost', '127.0.0.1', '[::1]'].includes(location.hostname);

// `notice`: why the former sign-in ended. `onDone` gets the session.
export function SignIn({ notice, onDone }) {
  const [account, setAccount] = useState('');
  const [password, setPassword] = useState('');
  const [code, setCode] = useState('');
  const [keep, setKeep] = useState(false);
  const [needsCode, setNeedsCode] = useState(false);
  const fields = { account: useRef(), password: useRef(), code: useRef() };
  const { run, isBusy, error } = useAction(async () => {
    const body = { account: account.trim(), password, keep, ...(needsCode && { code: code.trim() }) };
    onDone(await call('sign-in', body));
  });
  useEffect(() => {
    document.title = 'Sign in – Nephos';
    fields.account.current.focus();
  }, []);
  useEffect(() => {
    if (!error) return;
    const wantsCode = error.details?.code_needed === '1';
    if (wantsCode) setNeedsCode(true);
    const next = wantsCode || needsCode ? fields.code : fields.password;
    // The code's field is there after the next drawing.
    setTimeout(() => next.current?.select());
  }, [error]);
  const submit = (event) => {
    event.preventDefault();
    run();
  };
  return html`
    <main class="sign-in">
      <img src="icon.svg" alt="" width="48" height="48" />
      <h1>Sign in to Nephos</h1>
      ${notice && html`<p class="notice" role="alert">${notice}</p>`}
      ${!isSafe && html`<p class="notice">This page is not encrypted: your password would travel in clear text. Use an address that begins with https.</p>`}
      <form onSubmit=${submit}>
        <${Field} label="Account" name="account" autocomplete="username" autocapitalize="none" spellcheck=${false}
          inputRef=${fields.account} value=${account} onValue=${setAccount} required />
        <${Field} label="Password" name="password" type="password" autocomplete="current-password"
          inputRef=${fields.password} value=${password} onValue=${setPassword} required />
        ${needsCode && html`<${Field} label="Code" name="code" autocomplete="one-time-code" hint="Another of your devices can make a code."
          inputRef=${fields.code} value=${code} onValue=${setCode} required />`}
        <${Check} label="Keep me signed in on this computer" value=${keep} onValue=${setKeep} />
        <${Failure} error=${error} />
        <button class="primary" disabled=${isBusy}>${isBusy ? 'Signing in' : 'Sign in'}</button>
      </form>
    </main>`;
}
