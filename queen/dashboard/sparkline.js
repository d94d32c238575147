// A small picture of counts over time, for the cell of a table.

const NAMESPACE = "http://www.w3.org/2000/svg";
const HEIGHT = 22;
const WIDTH = 5;

export function sparkline(counts, text) {
  const picture = element("svg", { width: counts.length * WIDTH, height: HEIGHT, role: "img", "aria-label": text, class: "spark" });
  const most = Math.max(...counts, 1);
  counts.forEach((number, n) => {
    const height = number ? Math.max(2, (HEIGHT * number) / most) : 1;
    picture.append(element("rect", { x: n * WIDTH, y: HEIGHT - height, width: WIDTH - 1, height, class: number ? "some" : "" }));
  });
  return picture;
}

function element(name, attributes) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  return made;
}
