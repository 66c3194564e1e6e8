// the chart: the outputs over time, and below them a row of ticks for each module

const MOST_ROWS = 24;
const STROKES = [
  ["--lstm", []], ["--srn", [7, 3]], ["--cw", [2, 2]],
  ["--gru", [9, 3, 2, 3]], ["--cw-gru", [4, 4]], ["--target", [1, 3]],
];
const compact = new Intl.NumberFormat("en", { notation: "compact" });
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// the stroke of each output by its number; if there are more outputs than strokes, the most probable have one, or those
// that go furthest from 0
function chooseStrokes(history, outputs, softmax) {
  let numbers = Array.from({ length: outputs }, (_, i) => i);
  if (outputs > STROKES.length) {
    const rows = softmax ? history.slice(-1) : history;
    const peaks = numbers.map((i) => rows.reduce((peak, row) => Math.max(peak, Math.abs(row[i])), 0));
    numbers = numbers.sort((a, b) => peaks[b] - peaks[a]).slice(0, STROKES.length).sort((a, b) => a - b);
  }
  return new Map(numbers.map((number, i) => [number, STROKES[i]]));
}

function findRange(history, softmax) {
  if (softmax) return [0, 1];
  let low = 0, high = 0;
  for (const row of history)
    for (const value of row)
      if (Number.isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return low === high ? [low - 1, high + 1] : [low, high];
}

// round numbers between the ends of an axis, at most five
function chooseMarks(low, high) {
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const width = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const first = Math.ceil(low / width - 1e-9), last = Math.floor(high / width + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * width).toPrecision(6)));
}

const LEFT = 78, RIGHT = 8;

function findStep(canvas, steps, x) {
  const step = Math.floor((steps * (x - LEFT)) / (canvas.clientWidth - LEFT - RIGHT));
  return Math.max(0, Math.min(steps - 1, step));
}

function drawChart(canvas, { history, strokes, range, periods, chosen, softmax, unit }) {
  const rows = periods.slice(0, MOST_ROWS), ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, plot = 220, row = 18, top = 10, left = LEFT, right = RIGHT;
  const height = top + plot + 34 + row * rows.length + (periods.length > rows.length ? row : 0);
  canvas.style.height = `${height}px`;
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  const pen = canvas.getContext("2d"), [low, high] = range, steps = history.length;
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const [ink, muted, grid] = ["--ink", "--muted", "--grid"].map(colour);
  const x = (step) => left + ((width - left - right) * step) / steps;
  const y = (value) => top + plot - (plot * (value - low)) / (high - low);

  pen.fillStyle = grid;
  pen.fillRect(x(chosen), top, Math.max(2, x(chosen + 1) - x(chosen)), plot + 34 + row * rows.length);
  pen.textAlign = "right";
  for (const mark of chooseMarks(low, high)) {
    pen.fillStyle = mark === 0 ? muted : grid;
    pen.fillRect(left, y(mark) - 0.5, width - left - right, 1);
    pen.fillStyle = muted;
    pen.fillText(softmax ? `${Math.round(100 * mark)} %` : String(mark), left - 6, y(mark));
  }
  const order = Array.from(history[0].keys()).sort((a, b) => strokes.has(a) - strokes.has(b));
  for (const number of order) {
    const [name, dashes] = strokes.get(number) ?? ["--muted", []];
    pen.strokeStyle = colour(name);
    pen.globalAlpha = strokes.has(number) ? 1 : 0.35;
    pen.lineWidth = strokes.has(number) ? 2 : 1;
    pen.setLineDash(dashes);
    drawLine(pen, history, number, x, y);
  }
  pen.setLineDash([]);
  pen.globalAlpha = 1;
  pen.fillStyle = muted;
  pen.textAlign = "left";
  pen.fillText("1", left, top + plot + 12);
  pen.textAlign = "right";
  pen.fillText(String(steps), width - right, top + plot + 12);
  pen.textAlign = "center";
  pen.fillText(unit, (left + width - right) / 2, top + plot + 12);

  rows.forEach((period, i) => {
    const middle = top + plot + 34 + row * (i + 0.5);
    pen.textAlign = "right";
    pen.fillStyle = chosen % period ? muted : ink;
    pen.fillText(`period ${compact.format(period)}`, left - 6, middle);
    const mark = Math.max(1, Math.min(8, (x(1) - x(0)) * 0.7));
    for (let step = 0; step < steps; step += period)
      pen.fillRect((x(step) + x(step + 1) - mark) / 2, middle - 6, mark, 12);
  });
  if (periods.length > rows.length) {
    pen.textAlign = "left";
    pen.fillStyle = muted;
    pen.fillText(`and ${periods.length - rows.length} slower modules`, left, height - row / 2);
  }
}

// many steps in a column of pixels are drawn as their lowest and highest value
function drawLine(pen, history, number, x, y) {
  const together = Math.max(1, Math.floor(1 / (x(1) - x(0))));
  pen.beginPath();
  for (let step = 0; step < history.length; step += together) {
    const values = history.slice(step, step + together).map((row) => row[number]).filter(Number.isFinite);
    if (!values.length) continue;
    const middle = x(step + together / 2);
    pen.lineTo(middle, y(Math.min(...values)));
    if (values.length > 1) pen.lineTo(middle, y(Math.max(...values)));
  }
  pen.stroke();
}
