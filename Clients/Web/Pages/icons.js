// Drawings of 16 by 16, in lines.

import { html } from './preact.js';

const paths = {
  file: 'M4 1.5h5.5l3 3v10H4zM9.5 1.5v3h3',
  folder: 'M1.5 13V3h4.6l1.6 2h6.8v8z',
  link: 'M6.6 9.4a2.8 2.8 0 0 1 0-4l2.2-2.2a2.8 2.8 0 0 1 4 4l-1.2 1.2M9.4 6.6a2.8 2.8 0 0 1 0 4l-2.2 2.2a2.8 2.8 0 0 1-4-4l1.2-1.2',
  package: 'M2 4.8 8 1.6l6 3.2v6.4l-6 3.2-6-3.2zM2 4.8l6 3.2 6-3.2M8 8v6.4',
  trash: 'M2.5 4h11M6 4V2h4v2M4 4l.7 10.5h6.6L12 4M6.8 6.8v5M9.2 6.8v5',
  conflict: 'M8 1.8 15 14H1zM8 6.4v3.8M8 11.6v.9',
  key: 'M2 3h12M2 8h12M2 13h12M5.5 3v10',
  records: 'M2 2.5h12v11H2zM2 6h12M2 9.7h12M6.3 6v7.5',
  device: 'M2 2.5h12v8.5H2zM5.5 14h5M8 11v3',
  storage: 'M2 3.6c0-2.4 12-2.4 12 0v8.8c0 2.4-12 2.4-12 0zM2 3.6c0 2.4 12 2.4 12 0M2 8c0 2.4 12 2.4 12 0',
  activity: 'M8 1.5a6.5 6.5 0 1 0 .01 0zM8 4.5V8l2.5 1.8',
  sync: 'M13.5 6.5A5.8 5.8 0 0 0 3 5M2.5 1.8V5.3H6M2.5 9.5A5.8 5.8 0 0 0 13 11M13.5 14.2v-3.5H10',
  menu: 'M2 4h12M2 8h12M2 12h12',
  close: 'M3.5 3.5l9 9M12.5 3.5l-9 9',
  upload: 'M8 11V2M4.5 5.2 8 1.8l3.5 3.4M2 11v3h12v-3',
  search: 'M6.8 2a4.8 4.8 0 1 0 .01 0zM10.4 10.4 14.5 14.5',
};

export function Icon({ name }) {
  return html`<svg class=${`icon icon-${name}`} viewBox="0 0 16 16" aria-hidden="true"><path d=${paths[name]} /></svg>`;
}
