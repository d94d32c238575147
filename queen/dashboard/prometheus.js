// Parses metrics in the Prometheus format: samples with name, labels and value.

export function samples(text) {
  return text.split("\n").filter((line) => line && !line.startsWith("#")).map(sample);
}

function sample(line) {
  const [, name, labels = "", value] = /^([^{ ]+)(?:\{(.*)\})? (\S+)/.exec(line);
  return { name, labels: Object.fromEntries([...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map((found) => [found[1], found[2]])), value: Number(value) };
}
