// What the server counts by bucket, as lines of a chart.

export const RANGES = [["1", "1 hour"], ["6", "6 hours"], ["24", "24 hours"], ["168", "7 days"]];

const HOUR_MS = 3_600_000;
// Less than was asked for, because the server takes coarser buckets for a moment more.
const MARGIN_MS = 60_000;
// A bucket that has just begun says little.
const YOUNG_S = 20;

export function since(hours) {
  return new Date(Date.now() - hours * HOUR_MS + MARGIN_MS).toISOString();
}

// Times and lines over every bucket of a time; `of` has a function for each line, which reads a point or, where the server
// has nothing to tell, undefined. It is given the seconds that the bucket has lasted.
export function lines(points, minutes, hours, stamp, of) {
  const size = minutes * 60;
  const known = new Map(points.map((point) => [Date.parse(stamp(point)) / 1000, point]));
  const now = Date.now() / 1000;
  const first = known.size ? Math.min(...known.keys()) : now;
  const begin = Math.max(first, Math.ceil((now - hours * 3600) / size) * size);
  const times = [];
  for (let at = begin; at + YOUNG_S <= now; at += size) times.push(at);
  return [times, ...of.map((read) => times.map((at) => read(known.get(at), Math.min(size, now - at))))];
}
