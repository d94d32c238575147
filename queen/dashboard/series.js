// Statistics per bucket, as lines of a chart.

export const RANGES = [["1", "1 hour"], ["6", "6 hours"], ["24", "24 hours"], ["168", "7 days"]];

const HOUR_MS = 3_600_000;
// Slightly less than the range, because the server switches to coarser buckets above it.
const MARGIN_MS = 60_000;
// A bucket younger than this is left out: its rate would be noise.
const YOUNG_S = 20;

export function since(hours) {
  return new Date(Date.now() - hours * HOUR_MS + MARGIN_MS).toISOString();
}

// The times of all buckets in the range, and one list of values per function of `of`. A function gets the point of a bucket
// (undefined if the server has none) and the length of the bucket in seconds. `begun`: when what they tell of began, if
// there are buckets without a point before the first one.
export function lines(points, minutes, hours, stamp, of, begun = null) {
  const size = minutes * 60;
  const known = new Map(points.map((point) => [Date.parse(stamp(point)) / 1000, point]));
  const now = Date.now() / 1000;
  const first = Math.min(now, ...known.keys(), ...(begun ? [Math.floor(Date.parse(begun) / 1000 / size) * size] : []));
  const begin = Math.max(first, Math.ceil((now - hours * 3600) / size) * size);
  const times = [];
  for (let at = begin; at + YOUNG_S <= now; at += size) times.push(at);
  return [times, ...of.map((read) => times.map((at) => read(known.get(at), Math.min(size, now - at))))];
}
