"""The page of the export to WebAssembly works in a browser, from a file, without a network."""

import csv
import dataclasses
import io
import json
import re

import numpy as np
import pytest
import soundfile
import torch
from support.browsers import open_browser, set_size, wait_for
from support.html_pages import HOSTILE, Page
from support.sound_files import make_voice, write_sound
from support.wasm_modules import WasmNetwork

from cwrnn import ClockworkRNN
from cwrnn.experiments.words.features import resample
from cwrnn.experiments.words.recogniser.model import trim_silence
from cwrnn.export import to_wasm
from cwrnn.export.model import read_model
from cwrnn.export.wasm.export import describe_network, render_page, render_wrapper
from cwrnn.export.wasm.templates import read_file, read_style
from cwrnn.network import Network

CLOSER = "</script><script>document.title = 'broken'</script>"
ROWS = np.random.default_rng(0).normal(0, 1, (20, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """The export of a network that reads numbers."""
    torch.manual_seed(0)
    return to_wasm(Network(ClockworkRNN(3, 24, schedule=4), 2), tmp_path_factory.mktemp("numbers"), name="numbers")


@pytest.fixture(scope="module")
def words(recogniser, tmp_path_factory):
    """The export of a recogniser."""
    return to_wasm(recogniser, tmp_path_factory.mktemp("words"), name="words")


def open_page(browser, export):
    browser.get_log("browser")
    browser.get(export.files[2].as_uri())
    wait_for(browser, "document.documentElement.dataset.ready")


def read_text(browser, id):
    return browser.execute_script(f"return document.getElementById('{id}').textContent")


def run_rows(browser, text):
    browser.execute_script("document.getElementById('rows').value = arguments[0]", text)
    browser.find_element("id", "run").click()


def read_table(browser):
    """Return the names and the numbers that the page lists as CSV."""
    browser.execute_script("document.getElementById('numbers').open = true")
    text = wait_for(browser, "document.getElementById('table').value")
    browser.execute_script("document.getElementById('numbers').open = false")
    names, *rows = csv.reader(io.StringIO(text))
    return names, np.array(rows, np.float32)


def test_the_page_computes_what_the_module_does(browser, numbers):
    open_page(browser, numbers)
    assert read_text(browser, "summary") == "64 steps of 2 outputs."
    run_rows(browser, "\n".join(", ".join(map(repr, row)) for row in ROWS.astype(float).tolist()))
    assert read_text(browser, "summary") == "20 steps of 2 outputs."
    wasm = WasmNetwork(numbers.files[0].read_bytes(), 3, 2)
    expected = []
    for row in ROWS:
        wasm.step(row)
        expected.append(wasm.output())
    names, found = read_table(browser)
    assert names == ["output 1", "output 2"]
    np.testing.assert_array_equal(found, np.array(expected))
    assert read_text(browser, "problem") == ""


def test_the_page_shows_the_ticks_and_outputs_of_a_step(browser, numbers):
    open_page(browser, numbers)
    ticks = {1: "the modules with periods 1, 2, 4, 8 tick", 2: "the module with period 1 ticks", 5: "periods 1, 2, 4"}
    for step, text in ticks.items():
        browser.execute_script(
            "const slider = document.getElementById('step'); slider.value = arguments[0];"
            "slider.dispatchEvent(new Event('input'))",
            step,
        )
        shown = browser.execute_script("return document.getElementById('ticks').value")
        assert shown.startswith(f"{step} of 64: ")
        assert text in shown
        _, found = read_table(browser)
        cells = browser.execute_script(
            "return Array.from(document.getElementById('bars').rows, (row) => row.innerText)"
        )
        values = [float(re.split(r"\s+", cell.strip())[-1]) for cell in cells]
        np.testing.assert_allclose(values, found[step - 1], rtol=1e-3)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "There are no numbers."),
        ("a,b,c\n", "There are no numbers."),
        ("1,2,3\n1,2\n", "Line 2 has 2 numbers, the network takes 3."),
        ("1,2,3\n\n1,2,x\n", "Line 3: “x” is not a number that the network can take."),
        ("1,2,1e39", "Line 1: “1e39” is not a number that the network can take."),
        ("1,2,3\n" * 10_001, "There are 10,001 lines: this page takes at most 10,000."),
    ],
    ids=["empty", "names", "short", "text", "large", "long"],
)
def test_rows_that_cannot_be_read_are_named(browser, numbers, text, problem):
    open_page(browser, numbers)
    run_rows(browser, text)
    assert read_text(browser, "problem") == problem
    # the example is still there
    assert read_text(browser, "summary") == "64 steps of 2 outputs."
    run_rows(browser, "a b c\n1; 2; 3\r\n4 5\t6")
    assert read_text(browser, "problem") == ""
    assert read_text(browser, "summary") == "2 steps of 2 outputs."


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_chart_is_drawn_in_the_colours_of_the_theme(browser, numbers, theme):
    set_size(browser, 900, 900, dark=theme == "dark")
    open_page(browser, numbers)
    style = re.findall(r":root \{(.*?)\}", read_style(), flags=re.DOTALL)[theme == "dark"]
    colours = dict(re.findall(r"--([\w-]+): #([0-9a-f]{6})", style))
    drawn = browser.execute_script(
        "const chart = document.getElementById('chart'), found = new Set();"
        "const { data } = chart.getContext('2d').getImageData(0, 0, chart.width, chart.height);"
        "for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255)"
        "  found.add([0, 1, 2].map((k) => data[i + k].toString(16).padStart(2, '0')).join(''));"
        "return Array.from(found)"
    )
    # the two outputs, ticks and the grid
    assert {colours[name] for name in ("lstm", "srn", "ink", "muted", "grid")} <= set(drawn)


def test_a_network_without_inputs_runs_for_some_steps(browser, tmp_path):
    export = to_wasm(Network(ClockworkRNN(0, 8, schedule=2), 1), tmp_path / "out")
    open_page(browser, export)
    assert read_text(browser, "summary") == "320 steps of 1 output."
    browser.execute_script("document.getElementById('steps').value = '0'")
    browser.find_element("id", "run").click()
    assert read_text(browser, "problem") == "Expected a whole number from 1 to 10,000."


@pytest.mark.parametrize("page", ["numbers", "words"])
@pytest.mark.parametrize("width", [1200, 390])
def test_pages_fit_and_fetch_nothing_and_name_every_control(browser, request, recordings, page, width):
    set_size(browser, width, 900)
    open_page(browser, request.getfixturevalue(page))
    if page == "words":
        hear_file(browser, next(recordings.rglob("*.wav")))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []
    unnamed = browser.execute_script(
        "return Array.from(document.querySelectorAll('input, textarea, button'))"
        ".filter((part) => !(part.labels?.length || part.textContent.trim())).map((part) => part.id)"
    )
    assert unnamed == []
    assert browser.get_log("browser") == []


def test_the_policy_of_the_page_stops_requests_and_scripts(browser, numbers):
    open_page(browser, numbers)
    blocked = browser.execute_async_script(
        "const done = arguments[0], blocked = [];"
        "document.addEventListener('securitypolicyviolation', ({ effectiveDirective }) => {"
        "  if (blocked.push(effectiveDirective) === 3) done(blocked);"
        "});"
        "const script = document.createElement('script');"
        "script.textContent = 'document.title = 1';"
        "document.body.append(script);"
        "new Image().src = 'https://example.org/image.png';"
        "fetch('https://example.org').catch(() => {});"
    )
    assert sorted(blocked) == ["connect-src", "img-src", "script-src-elem"]
    assert browser.title.startswith("numbers: a Clockwork RNN")


def hear_file(browser, path):
    browser.find_element("id", "file").send_keys(str(path))
    wait_for(browser, "document.querySelector('#summary strong') || document.getElementById('problem').textContent")


def read_words(browser):
    """Return the probability of each word that the page shows."""
    cells = browser.execute_script(
        "const rows = Array.from(document.getElementById('bars').rows);"
        "return rows.map(({ cells }) => [cells[0].textContent, cells[2].textContent])"
    )
    return {word: float(text.removesuffix(" %")) / 100 for word, text in cells}


@pytest.mark.parametrize("trimmed", [True, False])
def test_the_page_recognises_a_recording_as_python_does(browser, words, recogniser, tmp_path, trimmed):
    silence = np.zeros(3000)
    voice = np.concatenate([silence, make_voice(101, 6000), silence])
    path = write_sound(tmp_path / "voice.wav", voice)
    samples, rate = soundfile.read(path)
    samples = trim_silence(samples, rate) if trimmed else samples
    expected = recogniser.recognise(samples, rate)
    open_page(browser, words)
    hear_file(browser, path)
    assert "after 0.43 s of sound" in read_text(browser, "summary")
    if not trimmed:
        # the file is heard again, from the beginning
        browser.find_element("id", "trim").click()
        wait_for(browser, "document.getElementById('summary').textContent.includes('after 0.75 s of sound')")
    frames = browser.execute_script("return Number(document.getElementById('step').max)")
    assert frames == 1 + (len(samples) - 400) // 160
    found = read_words(browser)
    assert list(found) == [word for word, _ in expected]
    np.testing.assert_allclose(list(found.values()), [probability for _, probability in expected], atol=1e-3)
    assert read_text(browser, "summary").startswith(expected[0][0])


def test_channels_are_mixed(browser, words, recogniser, tmp_path):
    voice, other = (np.round(8192 * make_voice(seed, 6000)) / 32768 for seed in (101, 102))
    path = write_sound(tmp_path / "voice.wav", np.stack([voice + other, voice - other], axis=1))
    expected = dict(recogniser.recognise(trim_silence(voice, 16000), 16000))
    open_page(browser, words)
    hear_file(browser, path)
    assert read_words(browser) == pytest.approx(expected, abs=1e-3)


def test_a_recording_of_another_rate_is_resampled(browser, words, recogniser, tmp_path):
    voice = make_voice(101, 6000)
    path = write_sound(tmp_path / "voice.wav", resample(voice, 16000, 44100), 44100)
    open_page(browser, words)
    browser.find_element("id", "trim").click()
    hear_file(browser, path)
    assert "after 0.38 s of sound" in read_text(browser, "summary")
    # resamplers differ near the highest frequency
    assert read_words(browser) == pytest.approx(dict(recogniser.recognise(voice, 16000)), abs=0.05)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"no sound", "cannot read the file as a sound"), (None, "a frame needs 400")],
    ids=["junk", "short"],
)
def test_a_file_that_is_no_word_is_refused(browser, words, tmp_path, content, problem):
    path = write_sound(tmp_path / "voice.wav", make_voice(1, 200))
    if content:
        path.write_bytes(content)
    open_page(browser, words)
    hear_file(browser, path)
    assert problem in read_text(browser, "problem")
    assert read_text(browser, "summary") == "Nothing has run yet."


def test_the_page_listens_to_the_microphone(browser, words):
    open_page(browser, words)
    # Chromium's made-up microphone beeps
    browser.find_element("id", "microphone").click()
    wait_for(browser, "Number(document.getElementById('step').max) > 120")
    assert read_text(browser, "microphone") == "Stop"
    assert set(read_words(browser)) == {"yes", "no", "née"}
    browser.find_element("id", "microphone").click()
    assert read_text(browser, "microphone") == "Record from the microphone"
    assert read_text(browser, "problem") == ""
    assert browser.get_log("browser") == []


LABELS = (CLOSER, HOSTILE, "'\"`\u2028\\")


def test_labels_end_no_script(recogniser):
    model = dataclasses.replace(read_model(recogniser), labels=LABELS)
    page = render_page(model, "words", b"\0asm")
    assert Page(page).tags.count("script") == 2
    (data,) = re.findall(r'<script type="application/json" id="network">(.*?)</script>', page)
    assert tuple(json.loads(data)["labels"]) == LABELS
    # the wrapper is safe in a page, too
    wrapper = render_wrapper(model, "words")
    assert "</script" not in wrapper
    (labels,) = re.findall(r"labels = Object.freeze\((.*)\);", wrapper)
    assert tuple(json.loads(labels)) == LABELS


def test_labels_do_no_harm(browser, recogniser, words, recordings, tmp_path):
    model = dataclasses.replace(read_model(recogniser), labels=LABELS)
    text = render_page(model, "words", words.files[0].read_bytes())
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    open_page(browser, dataclasses.replace(words, files=(path,) * 3))
    hear_file(browser, next(recordings.rglob("*.wav")))
    assert set(read_words(browser)) == set(LABELS)
    assert browser.title.startswith("words: ")
    assert browser.execute_script("return document.scripts.length") == 2
    assert browser.get_log("browser") == []


def test_the_styles_of_the_page_have_no_colours_of_their_own():
    # the contrast of the variables is tested with the report
    style = read_file("page.css")
    assert set(re.findall(r"(?<![-\w])(?:background|color|accent-color|fill): ([^;]+);", style)) <= {
        f"var(--{name})" for name in ("paper", "panel", "ink", "muted", "link", "no")
    }


@pytest.mark.parametrize(
    ("network", "text"),
    [
        (Network(ClockworkRNN(1, 8, schedule=2), 1), "a Clockwork RNN: 1 input, 8 units in 2 modules, 1 output"),
        (ClockworkRNN(0, 8, 3, schedule=[1]), "a Clockwork RNN: 0 inputs, 3 layers of 8 units in 1 module, 8 outputs"),
    ],
)
def test_networks_are_described(network, text):
    assert describe_network(read_model(network)) == text
