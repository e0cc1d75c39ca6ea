// The entry: session, router and the frame around the pages.

import { html, render, useEffect, useErrorBoundary, useRef, useState } from './preact.js';
import { DevicesPage } from './account.js';
import { call, setPage, signIn } from './api.js';
import { closeAllDialogs, confirmAct, Dialogs } from './dialogs.js';
import { FilesPage, SearchPage } from './files.js';
import { clock, dateOrClock } from './format.js';
import { Icon } from './icons.js';
import { KeysPage } from './keys.js';
import { LinksPage } from './links.js';
import { closeLive, liveState, openLive } from './live.js';
import { attempt, Failure, IconButton, showToast, Toasts } from './parts.js';
import { RecordsPage } from './records.js';
import { pageHref, parseRoute } from './routes.js';
import { SignIn } from './sign-in.js';
import { StatePage } from './state.js';
import { ActivityPage, StoragePage } from './storage.js';
import { useStore } from './store.js';
import { ConflictsPage, TrashPage } from './trash.js';
import { UploadPanel } from './upload-panel.js';
import { dropUploads, isUploading } from './uploads.js';

// Pages of a container have its name in their address.
const pages = {
  files: { label: 'Files', icon: 'folder', ofContainer: true },
  trash: { label: 'Trash', icon: 'trash', ofContainer: true },
  conflicts: { label: 'Conflicts', icon: 'conflict', ofContainer: true },
  links: { label: 'Links', icon: 'link', ofContainer: true },
  keys: { label: 'Key-values', icon: 'key' },
  records: { label: 'Records', icon: 'records', ofContainer: true },
  devices: { label: 'Devices', icon: 'device' },
  storage: { label: 'Storage', icon: 'storage' },
  activity: { label: 'Activity', icon: 'activity' },
  waiting: { label: 'Sync status', icon: 'sync' },
};

const sectionOf = (page) => (page === 'folder' || page === 'search' ? 'files' : page);

function useRoute() {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const update = () => {
      closeAllDialogs();
      setRoute(parseRoute(location.hash));
    };
    addEventListener('hashchange', update);
    return () => removeEventListener('hashchange', update);
  }, []);
  return route;
}

function App() {
  const [session, setSession] = useState();
  const [notice, setNotice] = useState('');
  const [error, setError] = useState();
  // An error of drawing: the page says so, and stays usable.
  const [crash, resetCrash] = useErrorBoundary((thrown) => {
    console.error(thrown);
    // A dialog that cannot be drawn does not come back.
    closeAllDialogs();
  });

  const end = (text, isSignOut) => {
    closeLive(isSignOut);
    setPage();
    dropUploads();
    closeAllDialogs();
    setNotice(text);
    setSession(null);
  };
  const begin = (next) => {
    setError(undefined);
    setNotice('');
    setSession(next);
    setPage(next);
    openLive(({ message }) => end(message));
  };
  const load = async () => {
    try {
      begin(await call('session'));
    } catch (thrown) {
      if (thrown.code !== 'notSignedIn' && thrown.code !== 'deviceRevoked') setError(thrown);
    }
  };
  useEffect(() => {
    signIn.onEnd = (ending) => end(ending.code === 'deviceRevoked' ? ending.message : '');
    load();
  }, []);

  if (crash) {
    return html`<main class="alone"><h1>Nephos</h1><p role="alert">Something went wrong on this page.</p>
      <button class="primary" onClick=${resetCrash}>Show it again</button></main>`;
  }
  if (session === null) return html`<${SignIn} notice=${notice} onDone=${begin} />`;
  if (!session) {
    return html`<main class="alone"><h1>Nephos</h1>
      ${error ? html`<${Failure} error=${error} /><button class="primary" onClick=${load}>Try again</button>` : html`<p role="status">Loading</p>`}</main>`;
  }
  const signOut = () => {
    const act = async () => {
      await call('sign-out');
      end('', true);
    };
    const text = 'Files are still uploading. The uploads stop, and what the server has of them is removed.';
    if (isUploading()) confirmAct({ title: 'Sign out', label: 'Sign out', text, act });
    else attempt(act);
  };
  return html`<${Shell} session=${session} onSignOut=${signOut} />`;
}

function Shell({ session, onSignOut }) {
  const route = useRoute();
  const [isMenuOpen, setIsMenuOpen] = useState(false);
  const section = sectionOf(route.page);
  const container = session.containers.includes(route.container) ? route.container : session.containers[0] ?? 'default';
  const main = useRef();
  useEffect(() => {
    setIsMenuOpen(false);
    if (pages[section] && section !== 'files') document.title = `${pages[section].label} – Nephos`;
  }, [route]);
  const skip = (event) => {
    event.preventDefault();
    main.current.focus();
  };
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <div class="shell">
      <header class=${isMenuOpen ? 'side open' : 'side'} onKeyDown=${(event) => event.key === 'Escape' && setIsMenuOpen(false)}>
        <div class="brand">
          <img src="icon.svg" alt="" width="28" height="28" /><strong>Nephos</strong>
          <span class="narrow-only"><${LiveMark} /></span>
          <span class="narrow-only"><${IconButton} icon=${isMenuOpen ? 'close' : 'menu'} label="Menu" aria-expanded=${isMenuOpen} onClick=${() => setIsMenuOpen(!isMenuOpen)} /></span>
        </div>
        <div class="menu-body">
          <${Navigation} session=${session} section=${section} container=${container} />
          <div class="who">
            <div class="wide-only"><${LiveMark} /></div>
            <div class="account">${session.account}<div class="note">${session.device?.name}</div></div>
            ${!session.local && html`<button type="button" onClick=${onSignOut}>Sign out</button>`}
          </div>
        </div>
      </header>
      <${Content} mainRef=${main} session=${session} route=${route} container=${container} />
    </div>
    <${UploadPanel} />
    <${Toasts} />
    <${Dialogs} />`;
}

function Navigation({ session, section, container }) {
  const change = (event) => {
    location.hash = pageHref(pages[section]?.ofContainer ? section : 'files', event.target.value);
  };
  return html`
    <nav aria-label="Pages">
      ${session.containers.length > 1 && html`
        <select aria-label="Container" onChange=${change}>
          ${session.containers.map((name) => html`<option value=${name} selected=${name === container}>${name}</option>`)}
        </select>`}
      <ul>
        ${Object.entries(pages).map(([id, page]) => html`
          <li key=${id}>
            <a href=${page.ofContainer ? pageHref(id, container) : pageHref(id)} aria-current=${id === section ? 'page' : undefined}>
              <${Icon} name=${page.icon} />${page.label}</a>
          </li>`)}
      </ul>
    </nav>`;
}

function LiveMark() {
  const { isConnected, lastBeat } = useStore(liveState);
  return html`<span class=${isConnected ? 'live' : 'live off'}>${isConnected ? `Live, ${clock(lastBeat)}` : 'Not connected'}</span>`;
}

function Content({ mainRef, session, route, container }) {
  const { isConnected, lastBeat } = useStore(liveState);
  return html`
    <main id="main" ref=${mainRef} tabindex="-1" class=${isConnected ? '' : 'stale'}>
      <div role="status">
        ${!isConnected && html`<p class="notice">Not connected since ${dateOrClock(lastBeat)}. The page may be out of date; it connects again by itself.</p>`}
      </div>
      <${Page} session=${session} route=${route} container=${container} />
    </main>`;
}

function Page({ session, route, container }) {
  const { page, path } = route;
  if (page === 'files') return html`<${FilesPage} container=${container} where=${path.length ? { path } : {}} />`;
  if (page === 'folder') return html`<${FilesPage} container=${container} where=${{ folder: path[0] }} />`;
  if (page === 'search') return html`<${SearchPage} container=${container} text=${path[0] ?? ''} />`;
  if (page === 'trash') return html`<${TrashPage} container=${container} />`;
  if (page === 'conflicts') return html`<${ConflictsPage} container=${container} />`;
  if (page === 'links') return html`<${LinksPage} container=${container} />`;
  if (page === 'keys') return html`<${KeysPage} />`;
  if (page === 'records') return html`<${RecordsPage} container=${container} path=${path} />`;
  if (page === 'devices') return html`<${DevicesPage} session=${session} />`;
  if (page === 'storage') return html`<${StoragePage} />`;
  if (page === 'activity') return html`<${ActivityPage} />`;
  if (page === 'waiting') return html`<${StatePage} />`;
  return html`<div class="page"><h1>This page does not exist</h1><p><a href=${pageHref('files', container)}>Go to the files</a></p></div>`;
}

const showCrash = () => showToast('Something went wrong on this page. Reload it.', { isFailure: true });
addEventListener('unhandledrejection', showCrash);

render(html`<${App} />`, document.getElementById('app'));
