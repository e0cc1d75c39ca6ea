// Sizes, dates and names as texts.

const units = ['kB', 'MB', 'GB', 'TB', 'PB', 'EB'];

export function bytes(count = 0) {
  if (count < 1000) return `${count} B`;
  let value = count;
  let unit = '';
  for (const next of units) {
    if (unit && value < 999.95) break;
    value /= 1000;
    unit = next;
  }
  return `${value.toFixed(1)} ${unit}`;
}

export function counted(count, noun, plural = `${noun}s`) {
  return `${count.toLocaleString('en-GB')} ${count === 1 ? noun : plural}`;
}

const dateFormat = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'short' });
const clockFormat = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });

// Times that no calendar has are not shown.
const isTime = (time) => time && !Number.isNaN(new Date(time).getTime());

export const date = (time) => (isTime(time) ? dateFormat.format(time) : '');
export const clock = (time) => (isTime(time) ? clockFormat.format(time) : '');

export function dateOrClock(time) {
  const isToday = new Date(time).toDateString() === new Date().toDateString();
  return isToday ? clock(time) : date(time);
}

// "5 days", of a time that is to come.
export function timeLeft(time) {
  const hours = Math.max(0, (time - Date.now()) / 3_600_000);
  if (hours < 1) return 'less than an hour';
  return hours < 48 ? counted(Math.floor(hours), 'hour') : counted(Math.floor(hours / 24), 'day');
}

// "report.tar" and ".gz"; a leading dot begins no extension.
export function splitName(name) {
  const dot = name.lastIndexOf('.');
  return dot > 0 ? [name.slice(0, dot), name.slice(dot)] : [name, ''];
}

// The first of "a 2.txt", "a 3.txt", ... that is free.
export function freeName(name, isTaken) {
  const [stem, extension] = splitName(name);
  let number = 2;
  while (isTaken(`${stem} ${number}${extension}`)) number += 1;
  return `${stem} ${number}${extension}`;
}

// "a.txt", or "3 items".
export const itemsText = (entries) => (entries.length === 1 ? `“${entries[0].name}”` : counted(entries.length, 'item'));

// The folder of an entry with a path, for people: "Letters / 2024".
export function folderOf(entry) {
  const names = Array.isArray(entry.path) ? entry.path : (entry.path ?? '').split('/');
  const shown = names.filter(Boolean).slice(0, -1);
  if (shown[0] === 'Documents') shown.shift();
  return ['Documents', ...shown].join(' / ');
}

export const collator = new Intl.Collator(undefined, { numeric: true });
