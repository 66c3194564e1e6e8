"""Makes the bundled words: the paper's 25 words, each spoken by seven synthetic voices, as features.

TIMIT is not free, so the words that come with the package are synthesised, by voices of Debian's main section alone:

    espeak-ng   formant synthesis: 4 accents of English x 39 variants, five of each word's seven voices
    flite       four recorded speakers, one of the seven
    festival    three recorded speakers, one of the seven

Every word draws its own seven voices, as TIMIT's seven speakers differ from word to word. No variant and no recorded
speaker says a word twice, so that no speaker of a word is in both training and test. Speed, pitch, size of the speaker,
loudness and the noise of the room are drawn as well. A random two of the seven are for testing.
"""

import argparse
import csv
import math
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import wave
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cwrnn.experiments.paper import WORDS_VOCABULARY
from cwrnn.experiments.words.bundle import write_bundle
from cwrnn.experiments.words.clips import TEST, TRAIN
from cwrnn.experiments.words.corpus import Corpus, Utterance
from cwrnn.experiments.words.features import FULL_SCALE, FeatureSettings, mfcc

ACCENTS = ("en-us", "en-us-nyc", "en-gb", "en-gb-x-rp")
"""The accents of espeak-ng. With the Scottish, Lancashire, West Midlands and Caribbean ones as well, five examples of a
word are too few to learn from."""

VARIANTS = (
    *("Alex", "Andrea", "Annie", "Denis", "Mario", "Mike", "Storm", "adam", "aunty", "belinda", "benjamin", "ed"),
    *("edward2", "f1", "f2", "f3", "f4", "f5", "grandma", "john", "klatt", "klatt2", "klatt3", "klatt4", "linda"),
    *("m1", "m2", "m3", "m4", "m5", "m6", "max", "norbert", "pablo", "pedro", "rob", "robert", "sandro", "victor"),
)
"""The variants of espeak-ng that speak clearly.

Left out are whispers and breath (whisper, whisperf, Demonic, Alicia); long echoes (RicishayMax to 3, Marco,
announcer, UniRobot, anikaRobot, robosoft to 8); formants taken away or moved so far that the vowels go (Andy,
AnxiousAndy, Lee, Jacky, Tweaky, boris, david, kaukovalta, shelby, travis, zac); tremor (croak, grandpa); muffled
(Diogo, Gene, Gene2, Henrique, Hugo, Michael, Nguyen, anika, antonio, edward, gustave, iven to iven4, klatt5, m7, m8,
marcelo, michel, miguel, paul, quincy, steph to steph3); the same sound as another or nearly so (caleb, klatt6, fast,
Mr serious).
"""

FLITE = {"kal16": ("kal", 100.0), "awb": ("awb", 125.0), "rms": ("rms", 100.0), "slt": ("slt", 170.0)}
"""The voices of flite: the recorded speaker, and the pitch in Hz."""

FESTIVAL = {
    "kal_diphone": ("kal", 105.0),
    "ked_diphone": ("ked", 105.0),
    "cmu_us_slt_arctic_hts": ("slt", 170.0),
}
"""The voices of festival: the recorded speaker, and the pitch in Hz."""

PER_WORD = {"espeak-ng": 5, "flite": 1, "festival": 1}
TESTING = 2
SAMPLE_RATE = 16_000
EDGE = 0.02
"""Seconds of silence to leave before and after a word."""
PACKAGES = {
    "espeak-ng": "espeak-ng",
    "flite": "flite",
    "festival": "festival festvox-kallpc16k festvox-kdlpc16k festvox-us-slt-hts",
}
"""The Debian packages of each program and its voices."""
LICENCE = "made by free programs, whose licences do not extend to what they say; MIT, as the package: see NOTICE"
"""Part of the bundled file: another text would give other bytes."""


@dataclass(frozen=True)
class Voice:
    """One way of speaking.

    engine: espeak-ng, flite or festival
    name: the engine's name for the voice
    person: the speaker; an espeak-ng variant counts as a person
    speed, pitch: relative to the engine's own
    size: the size of the speaker, relative to the engine's own; formants and pitch are divided by it
    level: the loudness, in dB of full scale
    noise: the noise of the room, in dB of the speech
    """

    engine: str
    name: str
    person: str
    speed: float
    pitch: float
    size: float
    level: float
    noise: float

    @property
    def speaker(self) -> str:
        """The speaker's name in the corpus, which is also the name of the sound file.

        >>> Voice("espeak-ng", "en-gb+f3", "f3", 1.1, 1.0, 1.0, -20.0, -50.0).speaker
        'espeak-ng_en-gb_f3'
        >>> Voice("flite", "rms", "rms", 1.1, 1.0, 0.95, -20.0, -50.0).speaker
        'flite_rms_95'
        """
        size = "" if self.engine == "espeak-ng" else f"_{100 * self.size:.0f}"
        return f"{self.engine}_{self.name.replace('+', '_')}{size}"

    @property
    def about(self) -> str:
        """All fields, for people to read."""
        return (
            f"{self.engine} {self.name}, speed {self.speed:g}, pitch {self.pitch:g}, size {self.size:g}, "
            f"level {self.level:g} dB, noise {self.noise:g} dB"
        )


def draw_voices(seed: int) -> dict[str, list[tuple[Voice, bool]]]:
    """Return seven voices for every word, each with True if it is for testing; those for training come first.

    >>> [len(voices) for voices in draw_voices(0).values()] == [7] * 25
    True
    """
    chance = random.Random(seed)
    formants = [(accent, variant) for accent in ACCENTS for variant in VARIANTS]
    chance.shuffle(formants)
    drawn = {}
    for word in (word for cluster in WORDS_VOCABULARY for word in cluster):
        names = _draw_people(chance, formants)
        chance.shuffle(names)
        voices = [_draw_voice(chance, *name) for name in names]
        drawn[word] = [(voice, index >= len(voices) - TESTING) for index, voice in enumerate(voices)]
    return drawn


def _draw_people(chance: random.Random, formants: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Return seven (engine, name, person), no person twice; remove those used from `formants`."""
    people: list[tuple[str, str, str]] = []
    for _ in range(PER_WORD["espeak-ng"]):
        taken = {person for *_, person in people}
        accent, variant = next(pair for pair in formants if pair[1] not in taken)
        formants.remove((accent, variant))
        people.append(("espeak-ng", f"{accent}+{variant}", variant))
    for engine, voices in (("festival", FESTIVAL), ("flite", FLITE)):
        for _ in range(PER_WORD[engine]):
            taken = {person for *_, person in people}
            name = chance.choice([name for name, (person, _) in voices.items() if person not in taken])
            people.append((engine, name, voices[name][0]))
    return people


def _draw_voice(chance: random.Random, engine: str, name: str, person: str) -> Voice:
    # the variants of espeak-ng already differ in size
    size = 1.0 if engine == "espeak-ng" else round(math.exp(chance.uniform(-0.08, 0.08)), 2)
    return Voice(
        engine,
        name,
        person,
        speed=round(math.exp(chance.uniform(math.log(0.85), math.log(1.25))), 2),
        pitch=round(2 ** chance.uniform(-0.3, 0.3), 2),
        size=size,
        level=round(chance.uniform(-28, -20), 1),
        noise=round(chance.uniform(-60, -45), 1),
    )


def speak(word: str, voice: Voice, folder: Path) -> NDArray[np.int16]:
    """Return the samples of `word` at 16 kHz: spoken, resized, trimmed, at the voice's loudness in its room."""
    path = folder / "spoken.wav"
    _run(_make_command(word, voice, path))
    with wave.open(str(path)) as file:
        sample_rate = file.getframerate()
        spoken = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2") / FULL_SCALE
    path.unlink()
    sound = trim_silence(resize_speaker(spoken, sample_rate, voice.size))
    sound *= 10 ** (voice.level / 20) / np.sqrt(np.mean(sound**2))
    # the same noise in every process, unlike hash() of a text
    chance = np.random.default_rng(zlib.crc32(f"{word} {voice}".encode()))
    sound += 10 ** ((voice.level + voice.noise) / 20) * chance.standard_normal(len(sound))
    return np.clip(np.rint(sound * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)


def resize_speaker(sound: NDArray[np.float64], sample_rate: int, size: float) -> NDArray[np.float64]:
    """Return `sound` at 16 kHz, stretched by `size`, as if the speaker were larger by that factor."""
    from scipy.signal import resample_poly

    up, down = round(100 * size) * SAMPLE_RATE, 100 * sample_rate
    common = math.gcd(up, down)
    return np.asarray(resample_poly(sound, up // common, down // common))


def trim_silence(sound: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `sound` with a margin in place of the silence at its ends, which is 35 dB below the loudest 10 ms.

    >>> trim_silence(np.concatenate([np.zeros(16_000), np.ones(1_600), np.zeros(8_000)])).shape
    (2240,)
    """
    frame = SAMPLE_RATE // 100
    power = np.square(sound[: len(sound) // frame * frame]).reshape(-1, frame).mean(axis=1)
    loud = np.flatnonzero(power > power.max() * 10**-3.5) * frame
    margin = round(EDGE * SAMPLE_RATE)
    padded = np.pad(sound, margin)
    # an index of `sound` is `margin` more in `padded`
    return padded[loud[0] : loud[-1] + frame + 2 * margin].copy()


def _make_command(word: str, voice: Voice, path: Path) -> list[str]:
    # speed and pitch compensate for the stretch of `resize_speaker`
    speed, pitch = voice.speed * voice.size, voice.pitch * voice.size
    if voice.engine == "espeak-ng":
        # the pitch of espeak-ng goes from 0 to 99
        settings = ["-s", f"{175 * speed:.0f}", "-p", f"{50 + 60 * math.log2(pitch):.0f}"]
        return ["espeak-ng", "-v", voice.name, *settings, "-w", str(path), word]
    if voice.engine == "flite":
        mean = FLITE[voice.name][1] * pitch
        settings = ["--setf", f"duration_stretch={1 / speed:.3f}", "--setf", f"int_f0_target_mean={mean:.1f}"]
        return ["flite", "-voice", voice.name, *settings, "-t", word, "-o", str(path)]
    mean = FESTIVAL[voice.name][1] * pitch
    return [
        *("festival", "-b"),
        f"(voice_{voice.name})",
        f"(Parameter.set 'Duration_Stretch {1 / speed:.3f})",
        # the diphone voices obey the mean, the HTS voice obeys the rate
        f"(set! int_lr_params '((target_f0_mean {mean:.1f}) (target_f0_std 14) (model_f0_mean 170) (model_f0_std 34)))",
        f"(if (boundp 'hts_engine_params) (set! hts_engine_params (append hts_engine_params '((\"-r\" {speed:.3f})))))",
        f'(utt.save.wave (utt.synth (Utterance Text "{word}")) "{path}" \'riff)',
    ]


def _run(command: list[str], *, check: bool = True) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise SystemExit(f"{command[0]}: cannot be run: {error.strerror}") from error
    if check and done.returncode:
        raise SystemExit(f"failed with {done.returncode}: {shlex.join(command)}\n{done.stderr.strip()}")
    return done.stdout


def find_missing_voices() -> dict[str, list[str]]:
    """Return the programs and voices that are not installed, by engine."""
    listed = {
        "espeak-ng": ([*ACCENTS, *VARIANTS], [["espeak-ng", "--voices=en"], ["espeak-ng", "--voices=variant"]]),
        "flite": (list(FLITE), [["flite", "-lv"]]),
        "festival": (list(FESTIVAL), [["festival", "-b", "(print (voice.list))"]]),
    }
    missing = {}
    for engine, (voices, commands) in listed.items():
        if shutil.which(engine) is None:
            missing[engine] = [engine]
            continue
        # espeak-ng lists a variant by its file: !v/f3
        there = set(re.split(r"[\s()/]+", " ".join(_run(command) for command in commands)))
        if absent := [voice for voice in voices if voice not in there]:
            missing[engine] = absent
    return missing


def synthesise(seed: int, audio: Path | None) -> Corpus:
    """Return the corpus of all words; with `audio`, write the sounds into that folder, with a manifest."""
    utterances = []
    drawn = draw_voices(seed)
    with tempfile.TemporaryDirectory() as folder:
        for number, (word, voices) in enumerate(drawn.items(), start=1):
            seconds = []
            for voice, testing in voices:
                sound = speak(word, voice, Path(folder))
                seconds.append(len(sound) / SAMPLE_RATE)
                if audio is not None:
                    _write(audio / word / f"{voice.speaker}.wav", sound)
                features = mfcc(sound / FULL_SCALE)
                split = TEST if testing else TRAIN
                utterances.append(Utterance(word, voice.speaker, split, features, f"synthetic: {voice.about}"))
            print(
                f"[{number:2}/{len(drawn)}] {word:12} {len(voices)} voices, {min(seconds):.2f} to {max(seconds):.2f} s",
                file=sys.stderr,
            )
    clusters = {word: number for number, cluster in enumerate(WORDS_VOCABULARY, start=1) for word in cluster}
    if audio is not None:
        with (audio / "manifest.csv").open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("word", "speaker", "file", "split", "cluster"))
            for utterance in utterances:
                name = f"{utterance.word}/{utterance.speaker}.wav"
                rows.writerow((utterance.word, utterance.speaker, name, utterance.split, clusters[utterance.word]))
    source = (
        "synthetic: the paper's 25 words, each synthesised with seven voices of espeak-ng, flite and festival "
        f"(tools/synthesise_words.py --seed {seed})"
    )
    return Corpus("synthetic", source, tuple(utterances), FeatureSettings(), True, clusters)


def _write(path: Path, sound: NDArray[np.int16]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes(sound.astype("<i2").tobytes())


def read_versions() -> dict[str, str]:
    """Return the line in which each program prints its version."""
    # flite prints its version and exits with an error
    lines = {engine: _run([engine, "--version"], check=False).splitlines() for engine in PACKAGES}
    return {
        engine: next(line for line in text if re.search(r"\d\.\d", line)).split("  Data at")[0].strip()
        for engine, text in lines.items()
    }


def main() -> None:
    """Write the bundle that the options describe."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n"
        "  synthesise_words.py --out src/cwrnn/experiments/words/synthetic.npz   the bundle of the package\n"
        "  synthesise_words.py --out other.npz --seed 1                  another draw of voices\n"
        "  synthesise_words.py --out other.npz --audio sounds            and the sounds, for listening\n\n"
        f"needs the Debian packages {' '.join(PACKAGES.values())}, and pip install 'cwrnn[experiments]'",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the bundle to write, an .npz")
    parser.add_argument("--audio", type=Path, metavar="FOLDER", help="also write the sounds, as WORD/SPEAKER.wav")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the draw of voices (default: %(default)s)")
    arguments = parser.parse_args()
    if missing := find_missing_voices():
        names = "; ".join(f"{engine}: {', '.join(voices)}" for engine, voices in missing.items())
        packages = " ".join(PACKAGES[engine] for engine in missing)
        raise SystemExit(f"not installed: {names}\non Debian: apt-get install {packages}")
    if arguments.audio is not None and arguments.audio.exists() and any(arguments.audio.iterdir()):
        raise SystemExit(f"{arguments.audio}: the folder must be empty, so that only these sounds are in the corpus")
    if not arguments.out.parent.is_dir():
        raise SystemExit(f"{arguments.out.parent}: there is no such folder")
    about = {"tools": read_versions(), "licence": LICENCE}
    corpus = synthesise(arguments.seed, arguments.audio)
    write_bundle(arguments.out, corpus, about)
    print(f"{arguments.out}: {len(corpus.utterances)} utterances, {arguments.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
