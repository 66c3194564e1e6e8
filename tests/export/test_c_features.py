"""The features of a recogniser in C are those of Python, and have the same bits on every machine."""

import ctypes
import dataclasses
import shutil

import numpy as np
import pytest
import wasmtime
from support.exported_networks import WARNINGS

from cwrnn import ClockworkRNN
from cwrnn.experiments.words.features import FeatureSettings, FeatureStream, mfcc
from cwrnn.export import ExportError
from cwrnn.export.c.compilers import LIBRARY, compile_program, find_compiler, find_zig
from cwrnn.export.c.emulator import TARGET, Emulator
from cwrnn.export.c.features import make_tables, measure_frames
from cwrnn.export.c.plan import plan_network
from cwrnn.export.c.source import render_network
from cwrnn.export.model import Features, read_model

TOLERANCE = 2e-4
"""The largest difference of a normalised feature."""
SETTINGS = {
    "default": FeatureSettings(),
    "8 kHz": FeatureSettings(rate=8000, high=4000),
    "odd": FeatureSettings(rate=44100, window=25.06, step=9.7, filters=31, cepstra=5),
    "plain": FeatureSettings(window=10.0625, step=10.0625, filters=15, cepstra=7, lifter=0, high=6000, preemphasis=0.0),
    "tiny": FeatureSettings(rate=192_000, window=0.17, step=0.01, filters=3, cepstra=2, high=96_000.0),
}
DRIVER = """#include "words.c"
static words_features features;
float frame[WORDS_INPUTS];
uint32_t size_of_features(void);
uint32_t run(const int16_t *samples, uint32_t count, float *frames, uint32_t *ends);
uint32_t hash(uint32_t count);
uint32_t size_of_features(void)
{
    return (uint32_t)sizeof(features);
}
uint32_t run(const int16_t *samples, uint32_t count, float *frames, uint32_t *ends)
{
    uint32_t i, found = 0;
    words_features_reset(&features);
    for (i = 0; i < count; i++)
        if (words_features_accept(&features, samples[i], frames + found * WORDS_INPUTS))
            ends[found++] = i + 1;
    return found;
}
uint32_t hash(uint32_t count)
{
    uint32_t random = 1, result = 2166136261u, i;
    words_features_reset(&features);
    while (count-- > 0) {
        random = random * 1664525u + 1013904223u;
        /* now loud, now quiet, now still */
        if (words_features_accept(&features, (int16_t)((int32_t)random >> (16 + (count >> 8) % 16)), frame))
            for (i = 0; i < WORDS_INPUTS; i++) {
                union {
                    float number;
                    uint32_t bits;
                } both;
                both.number = frame[i];
                result = (result ^ both.bits) * 16777619u;
            }
    }
    return result;
}
"""
HASHED = 16_000


def make_features(settings):
    # about as large as those of speech
    deviation = np.array([20.0] * settings.cepstra + [2.4])
    return Features(settings, np.linspace(-20, 20, settings.channels), deviation)


def write_source(features, folder):
    model = dataclasses.replace(read_model(ClockworkRNN(features.settings.channels, 4)), features=features)
    for file, text in render_network(plan_network(model), "words").items():
        (folder / file).write_text(text, encoding="utf-8")
    (folder / "driver.c").write_text(DRIVER)
    return folder / "driver.c"


def load_library(source, *options, compiler=None):
    library = source.parent / f"library{len(list(source.parent.iterdir()))}.so"
    return ctypes.CDLL(
        str(compile_program(compiler or find_compiler(), [source], library, *LIBRARY, *WARNINGS, *options))
    )


def run(library, features, samples):
    frames = np.full((len(samples), features.settings.channels), np.nan, np.float32)
    ends = np.zeros(len(samples), np.uint32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (samples, frames, ends)]
    count = library.run(pointers[0], len(samples), *pointers[1:])
    return frames[:count], ends[:count]


def make_sounds(settings):
    generator = np.random.default_rng(0)
    n = max(settings.rate // 4, 2 * settings.shortest)
    t = np.arange(n) / settings.rate
    sounds = {
        "noise": 3000 * generator.standard_normal(n),
        "whisper": 2 * generator.standard_normal(n),
        "tone": 20_000 * np.sin(2 * np.pi * 440 * t) - 3000,
        "square wave": 32_767 * np.sign(np.sin(2 * np.pi * 300 * t)),
        "clicks": 1234.0 + (generator.random(n) < 0.01),
        "silence": np.zeros(n),
        "full scale": np.full(n, -32_768.0),
    }
    return {name: np.clip(np.rint(sound), -32_768, 32_767).astype(np.int16) for name, sound in sounds.items()}


@pytest.mark.parametrize("name", list(SETTINGS))
def test_frames_are_those_of_python(name, tmp_path):
    features = make_features(SETTINGS[name])
    library = load_library(write_source(features, tmp_path))
    window, step, _ = measure_frames(features.settings)
    assert library.size_of_features() == measure_frames(features.settings).state_bytes
    for sound, samples in make_sounds(features.settings).items():
        frames, ends = run(library, features, samples)
        expected = (mfcc(samples / 32768.0, features.settings) - features.mean) / features.deviation
        assert frames.shape == expected.shape
        np.testing.assert_array_equal(ends, window + step * np.arange(len(expected)))
        np.testing.assert_allclose(frames, expected, rtol=0, atol=TOLERANCE, err_msg=sound)
    # the sound has ended within a window, of which nothing is left
    assert FeatureStream(features.settings).finish().shape[0] == 0


def test_a_reset_forgets_the_sound_before(tmp_path):
    features = make_features(FeatureSettings())
    library = load_library(write_source(features, tmp_path))
    samples = make_sounds(features.settings)["noise"]
    first, _ = run(library, features, samples[:1001])
    again, _ = run(library, features, samples[:1001])
    assert len(first) == 4
    np.testing.assert_array_equal(first, again)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_source(make_features(FeatureSettings()), tmp_path_factory.mktemp("features"))


@pytest.fixture(scope="module")
def expected_hash(source):
    return load_library(source, compiler=find_zig()).hash(HASHED) % 2**32


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("option", ["-O0", "-O3"])
def test_gcc_computes_the_same_bits(source, expected_hash, option):
    assert load_library(source, option, compiler=["gcc"]).hash(HASHED) % 2**32 == expected_hash


def test_webassembly_computes_the_same_bits(source, expected_hash, tmp_path):
    options = ["-target", "wasm32-freestanding", "-nostdlib", "-Wl,--no-entry", "-Wl,--export=hash"]
    program = compile_program(find_zig(), [source], tmp_path / "features.wasm", *options)
    store = wasmtime.Store()
    module = wasmtime.Module(store.engine, program.read_bytes())
    assert wasmtime.Instance(store, module, []).exports(store)["hash"](store, HASHED) % 2**32 == expected_hash


@pytest.fixture(scope="module")
def emulator(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("emulated")
    start = folder / "start.c"
    start.write_text(
        '#include "words.h"\nuint32_t hash(uint32_t count);\nvoid _start(void);\nwords_features stream;\n'
        "void _start(void)\n{\n    hash(0);\n    words_features_reset(&stream);\n}\n"
    )
    program = compile_program(
        find_zig(),
        [start, source],
        folder / "features.elf",
        *TARGET,
        *WARNINGS,
        f"-I{source.parent}",
        "-Wl,--no-gc-sections",
    )
    return Emulator(program)


def test_a_cortex_m4_computes_the_same_bits(emulator, expected_hash):
    assert emulator.call("hash", HASHED).result == expected_hash


def test_a_frame_stays_below_its_bar(emulator):
    stream, frame = (emulator.symbols[name].address for name in ("stream", "frame"))
    emulator.call("words_features_reset", stream)
    samples = make_sounds(FeatureSettings())["noise"]
    counts = [
        emulator.call("words_features_accept", stream, int(sample) & 0xFFFFFFFF, frame) for sample in samples[:720]
    ]
    assert [number for number, call in enumerate(counts, 1) if call.result] == [400, 560, 720]
    # from one frame to the next: the calls that only store a sample, and the one that computes
    assert sum(call.instructions for call in counts[400:560]) <= 30_000
    assert max(call.instructions for call in counts[400:559]) <= 15
    tables = make_tables(make_features(FeatureSettings()))
    names = ("window", "places", "turns", "split", "rise", "ends", "cosines", "offsets")
    assert sum(emulator.symbols[f"feature_{name}"].size for name in names) == tables.nbytes <= 7000
    assert emulator.symbols["stream"].size <= 3000


def test_a_window_that_is_too_long_is_refused():
    settings = FeatureSettings(rate=192_000, window=342, step=10)
    with pytest.raises(ExportError, match="windows of 65664 samples, but C can have 65535 at most: 342 ms at 192000"):
        measure_frames(settings)
    assert measure_frames(FeatureSettings(rate=192_000, window=341, step=10)).transform == 65_536


def test_a_normalisation_out_of_range_is_refused():
    features = make_features(FeatureSettings())
    with pytest.raises(ExportError, match="too large for float32"):
        make_tables(dataclasses.replace(features, deviation=np.full(13, 1e-39)))
