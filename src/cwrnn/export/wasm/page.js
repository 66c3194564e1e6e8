// the page: what is read runs through the network, and what comes out is drawn and listed

const MOST_STEPS = 10000, MOST = MOST_STEPS.toLocaleString("en");
const part = (id) => document.getElementById(id);
const network = JSON.parse(part("network").textContent);
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const format = (value) => (network.softmax ? `${(100 * value).toFixed(1)} %` : Number(value.toPrecision(4)).toString());

const unit = network.rate ? "frame" : "step";

let history = [], strokes = new Map(), range = [0, 1], chosen = 0;

function report(problem) {
  part("problem").textContent = problem;
}

function readOutput(net) {
  const output = net.output();
  if (!network.softmax) return output;
  const highest = Math.max(...output), powers = output.map((value) => Math.exp(value - highest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((value) => value / sum);
}

function showHistory(step = history.length - 1) {
  [strokes, range] = [chooseStrokes(history, network.outputs, network.softmax), findRange(history, network.softmax)];
  part("after").hidden = !history.length;
  part("step").max = history.length;
  part("step").value = step + 1;
  if (part("numbers").open) fillTable();
  if (history.length) showStep(step);
}

function showStep(step) {
  chosen = step;
  const { periods, softmax } = network;
  drawChart(part("chart"), { history, strokes, range, periods, chosen, softmax, unit });
  const ticking = periods.filter((period) => step % period === 0);
  const which = ["no module ticks", `the module with period ${ticking} ticks`][ticking.length]
    ?? `the modules with periods ${ticking.join(", ")} tick`;
  part("ticks").value = `${step + 1} of ${history.length}: ${which}.`;
  part("chart").ariaLabel = `Chart of ${count(network.outputs, "output")} over ${count(history.length, unit)}.`;
  const values = history[step], order = Array.from(values.keys());
  // probabilities have an order, other outputs keep theirs
  if (softmax) order.sort((a, b) => values[b] - values[a]);
  order.forEach((number, i) => fillBar(part("bars").rows[i], values[number], number, softmax && i === 0));
}

function makeBars() {
  const bars = network.labels.map(() => {
    const row = document.createElement("tr"), name = document.createElement("th");
    name.scope = "row";
    const bar = row.insertCell(), value = row.insertCell();
    row.prepend(name);
    [bar.className, value.className] = ["bar", "n"];
    name.append(makeShape("line"), "");
    bar.append(makeShape("rect"));
    return row;
  });
  part("bars").replaceChildren(...bars);
}

function makeShape(shape) {
  const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  drawing.setAttribute("aria-hidden", "true");
  drawing.append(document.createElementNS(drawing.namespaceURI, shape));
  return drawing;
}

function fillBar(row, value, number, isHighest) {
  const [low, high] = range, [name, dashes] = strokes.get(number) ?? ["--muted", []];
  const place = (level) => (100 * (Math.min(high, Math.max(low, level)) - low)) / (high - low);
  const [from, to] = [place(0), place(Number.isFinite(value) ? value : 0)].sort((a, b) => a - b);
  const [line, bar] = [row.querySelector("line"), row.querySelector("rect")];
  const set = (shape, attributes) => Object.entries(attributes).forEach(([key, text]) => shape.setAttribute(key, text));
  // the stroke of the output in the chart
  set(line, { x1: 0, x2: "100%", y1: "50%", y2: "50%", "stroke-width": 2, "stroke-dasharray": dashes.join(" "),
    stroke: strokes.has(number) ? `var(${name})` : "none" });
  set(bar, { x: `${from}%`, width: `${to - from}%`, y: "15%", height: "70%", fill: `var(${name})` });
  row.cells[0].lastChild.data = network.labels[number];
  row.cells[2].textContent = format(value);
  row.className = isHighest ? "highest" : "";
}

function makeCsv() {
  const quote = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const rows = history.map((row) => Array.from(row, (value) => Number(value.toPrecision(9))).join(","));
  return [network.labels.map(quote).join(","), ...rows, ""].join("\n");
}

function fillTable() {
  part("table").value = makeCsv();
}

function readRows(text) {
  const lines = text.split(/\r?\n/).map((line, i) => [i + 1, line.trim()]).filter(([, line]) => line);
  const rows = lines.map(([number, line]) => [number, line.split(/\s*[,;\t]\s*|\s+/)]);
  if (rows.length && rows[0][1].every((cell) => Number.isNaN(Number(cell)))) rows.shift();
  if (!rows.length) throw new Error("There are no numbers.");
  if (rows.length > MOST_STEPS)
    throw new Error(`There are ${count(rows.length, "line")}: this page takes at most ${MOST}.`);
  return rows.map(([number, cells]) => {
    if (cells.length !== network.inputs)
      throw new Error(`Line ${number} has ${count(cells.length, "number")}, the network takes ${network.inputs}.`);
    const wrong = cells.find((cell) => cell === "" || !Number.isFinite(Math.fround(Number(cell))));
    if (wrong !== undefined)
      throw new Error(`Line ${number}: “${wrong.slice(0, 40)}” is not a number that the network can take.`);
    return Float32Array.from(cells, Number);
  });
}

function readSteps(text) {
  const steps = Number(text);
  if (!Number.isInteger(steps) || steps < 1 || steps > MOST_STEPS)
    throw new Error(`Expected a whole number from 1 to ${MOST}.`);
  return Array.from({ length: steps }, () => new Float32Array(0));
}

function makeExample() {
  const rows = Math.max(8, Math.min(64, Math.floor(4000 / network.inputs)));
  const wave = (step, i) => Math.sin((2 * Math.PI * step) / (6 * 1.7 ** (i % 6)) + i).toFixed(3);
  const makeRow = (_, step) => Array.from({ length: network.inputs }, (_, i) => wave(step, i)).join(", ");
  return Array.from({ length: rows }, makeRow).join("\n");
}

function runNumbers(net) {
  report("");
  try {
    const rows = network.inputs ? readRows(part("rows").value) : readSteps(part("steps").value);
    net.reset();
    history = rows.map((row) => { net.step(row); return readOutput(net); });
    part("summary").textContent = `${count(history.length, "step")} of ${count(network.outputs, "output")}.`;
    showHistory();
  } catch (error) {
    report(error.message);
  }
}

function showDecision(seconds) {
  const words = part("summary"), last = history[history.length - 1];
  if (!last) return;
  const best = last.indexOf(Math.max(...last)), word = document.createElement("strong");
  word.textContent = network.labels[best];
  words.replaceChildren(word, ` ${format(last[best])}, after ${seconds.toFixed(2)} s of sound`);
}

// runs a whole sound through the network from its initial state
function runSound(net, samples) {
  const sound = part("trim").checked ? trimSilence(samples, network.rate) : samples;
  const shortest = Math.floor((network.rate * network.window) / 1000);
  if (sound.length < shortest)
    throw new Error(`The sound has ${count(sound.length, "sample")} at ${network.rate} Hz: a frame needs ${shortest}.`);
  if ((1000 * sound.length) / network.rate > MOST_STEPS * network.step)
    throw new Error(`The sound is too long: this page takes at most ${MOST} frames.`);
  net.reset();
  history = [];
  net.hear(toIntegers(sound), () => history.push(readOutput(net)));
  showHistory();
  showDecision(sound.length / network.rate);
}

async function runFile(net, file) {
  report("");
  try {
    const samples = await readSound(file, network.rate).catch(() => null);
    if (!samples) throw new Error("This browser cannot read the file as a sound.");
    runSound(net, samples);
  } catch (error) {
    report(error.message);
  }
}

function prepareMicrophone(net) {
  const button = part("microphone"), offer = button.textContent;
  let stop = null, heard = [], waiting = false;
  const draw = () => {
    waiting = false;
    if (stop && history.length) {
      showHistory();
      showDecision(heard.length / network.rate);
    }
  };
  const end = () => {
    stop();
    [stop, button.textContent] = [null, offer];
    try {
      runSound(net, Float32Array.from(heard));
    } catch (error) {
      report(error.message);
    }
  };
  button.addEventListener("click", async () => {
    report("");
    if (stop) return end();
    button.disabled = true;
    try {
      [heard, history] = [[], []];
      net.reset();
      stop = await listen(network.rate, (samples) => {
        if (!stop) return;
        heard.push(...samples);
        net.hear(toIntegers(samples), () => history.push(readOutput(net)));
        if (history.length >= MOST_STEPS) end();
        else if (!waiting) waiting = Boolean(requestAnimationFrame(draw));
      });
      button.textContent = "Stop";
      part("summary").textContent = "Listening: say a word, then stop.";
    } catch (error) {
      report(`The microphone cannot be used: ${error.message}`);
    } finally {
      button.disabled = false;
    }
  });
}

function prepare(net) {
  makeBars();
  part("step").addEventListener("input", () => showStep(Number(part("step").value) - 1));
  part("chart").addEventListener("pointerdown", ({ offsetX }) => {
    showHistory(findStep(part("chart"), history.length, offsetX));
  });
  part("numbers").addEventListener("toggle", () => part("numbers").open && fillTable());
  part("save").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([makeCsv()], { type: "text/csv" }));
    link.download = `${network.name}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  });
  const redraw = () => history.length && showStep(chosen);
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  if (network.rate) {
    let file;
    part("file").addEventListener("change", () => { file = part("file").files[0]; if (file) runFile(net, file); });
    part("trim").addEventListener("change", () => file && runFile(net, file));
    prepareMicrophone(net);
  } else {
    if (network.inputs) part("rows").value = makeExample();
    part("run").addEventListener("click", () => runNumbers(net));
    runNumbers(net);
  }
  document.documentElement.dataset.ready = "true";
}

try {
  prepare(await load(Uint8Array.from(atob(network.wasm), (letter) => letter.charCodeAt(0))));
} catch (error) {
  report(`This browser cannot run the network: ${error.message}`);
}
