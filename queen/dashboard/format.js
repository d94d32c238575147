// Formats numbers and times for people.

const WHOLE = once(() => new Intl.NumberFormat("en"));
const SHORT = once(() => new Intl.NumberFormat("en", { maximumSignificantDigits: 3 }));
const TIME = once(() => new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" }));
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

export const NOTHING = "–";

// What is made when it is needed first. Together the formats take a browser 25 ms.
export function once(make) {
  let made;
  return () => (made ??= make());
}

export function count(number) {
  return number === null || number === undefined ? NOTHING : WHOLE().format(number);
}

export function rate(number) {
  return `${number >= 1000 ? WHOLE().format(Math.round(number)) : SHORT().format(number)}/s`;
}

export function percent(number) {
  return `${SHORT().format(number)} %`;
}

export function bytes(number) {
  const power = number < 1 ? 0 : Math.min(Math.floor(Math.log2(number) / 10), 4);
  return `${SHORT().format(number / 1024 ** power)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

// A duration in its largest unit, with the next unit if the first number has one digit.
export function duration(seconds) {
  if (seconds === null || seconds === undefined || seconds < 0) return NOTHING;
  if (seconds < 10) return `${SHORT().format(seconds)} s`;
  const first = UNITS.findIndex(([size]) => seconds >= size);
  const [size, unit] = UNITS[first];
  const whole = Math.floor(seconds / size);
  const rest = whole < 10 && UNITS[first + 1] ? Math.floor((seconds % size) / UNITS[first + 1][0]) : 0;
  return `${whole} ${unit}${rest ? ` ${rest} ${UNITS[first + 1][1]}` : ""}`;
}

export function milliseconds(number) {
  return number < 1000 ? `${SHORT().format(number)} ms` : duration(number / 1000);
}

export function moment(text) {
  return text ? TIME().format(new Date(text)) : NOTHING;
}

export function ago(text) {
  return text ? `${duration(Math.max(0, (Date.now() - Date.parse(text)) / 1000))} ago` : NOTHING;
}

// The name of a consumer group, as people say it: that of consumers who name none has a technical one.
export function groupName(name) {
  return name === "__QUEUE_MODE__" ? "queue mode" : name;
}

export function json(value) {
  return JSON.stringify(value, null, 2) ?? "";
}

// JSON on one line, cut to fit a table.
export function glimpse(value, characters = 90) {
  const text = JSON.stringify(value) ?? "";
  return text.length > characters ? `${text.slice(0, characters - 1)}…` : text;
}
