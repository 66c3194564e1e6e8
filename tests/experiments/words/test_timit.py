"""TIMIT in all its layouts, and NLTK's sample of it: which examples are chosen, and what is reported."""

import os
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from support.sound_files import SAMPLE_RATE, encode_sphere, make_voice, write_sound

from cwrnn.experiments import paper
from cwrnn.experiments.words.clips import Clip, order_speakers
from cwrnn.experiments.words.corpus import CorpusError, WordsError, load_corpus
from cwrnn.experiments.words.feature_cache import load_features
from cwrnn.experiments.words.features import FeatureSettings, mfcc

WORDS_OF_THE_PAPER = tuple(chain.from_iterable(paper.WORDS_VOCABULARY))
LENGTH = 800
SA1 = ["she", "had", "your", "dark", "suit", "in", "greasy", "wash", "water", "all", "year"]
SA2 = ["don't", "ask", "me", "to", "carry", "an", "oily", "rag", "like", "that"]


def load_without_cache(source, **options):
    return load_corpus(str(source), **{"cache": False, **options})


def make_transcript(words):
    return "".join(f"{500 + LENGTH * i} {500 + LENGTH * (i + 1)} {word}\n" for i, word in enumerate(words))


def make_signal(words, seed):
    """Return samples in which each word depends on the word, the seed and the place."""
    parts = [make_voice([seed, i, *word.encode()], LENGTH) for i, word in enumerate(words)]
    # rounded to 16 bits, which every format keeps
    return np.rint(np.concatenate([make_voice(seed, 500), *parts, make_voice(seed, 700)]) * 32768) / 32768


def compute_part(words, seed, word):
    start = 500 + LENGTH * words.index(word)
    return mfcc(make_signal(words, seed)[start : start + LENGTH])


def write_timit(root, speakers=8, words=WORDS_OF_THE_PAPER, upper=True, order="01", folders=("TRAIN", "TEST")):
    """Write TIMIT as the LDC has it: every speaker says the words in five sentences, and SA1.

    Returns:
        for each word and speaker the words of the sentence, the seed, and the word
    """
    spoken = {}
    for j in range(speakers):
        name = f"{'FM'[j % 2]}SP{j}0"
        folder = root / folders[j % len(folders)] / f"DR{1 + j % 8}" / name
        sentences = {f"SX{100 * i + j}": list(words[i::5]) for i in range(5)} | {"SA1": SA1}
        for sentence, text in sentences.items():
            if not upper:
                folder, sentence = root / str(folder.relative_to(root)).lower(), sentence.lower()
            folder.mkdir(parents=True, exist_ok=True)
            suffixes = (".WAV", ".WRD", ".TXT", ".PHN") if upper else (".wav", ".wrd", ".txt", ".phn")
            (folder / f"{sentence}{suffixes[0]}").write_bytes(encode_sphere(make_signal(text, j), order=order))
            (folder / f"{sentence}{suffixes[1]}").write_text(make_transcript(text))
            (folder / f"{sentence}{suffixes[2]}").write_text(f"0 9999 {' '.join(text)}.\n")
            (folder / f"{sentence}{suffixes[3]}").write_text("0 500 h#\n")
            spoken.update({(word, name.lower()): (text, j, word) for word in text})
    return spoken


def write_nltk_sample(root, speakers=7, sentences=(("sa1", SA1), ("sa2", SA2))):
    """Write the sample as NLTK has it, and return what `write_timit` returns."""
    spoken = {}
    for j in range(speakers):
        for sentence, text in (*sentences, (f"sx{j}", ["the", "subway"])):
            folder = root / f"dr{1 + j % 8}-{'fm'[j % 2]}sp{j}0"
            write_sound(folder / f"{sentence}.wav", make_signal(text, j), subtype="PCM_16")
            (folder / f"{sentence}.wrd").write_text(make_transcript(text))
            (folder / f"{sentence}.phn").write_text("0 500 h#\n")
            (folder / f"{sentence}.txt").write_text(" ".join(text))
            spoken.update({(word, folder.name[4:]): (text, j, word) for word in text})
    (root / "timitdic.txt").write_text("; a dictionary")
    return spoken


@pytest.mark.parametrize(
    ("upper", "order", "folders"),
    [(True, "01", ("TRAIN", "TEST")), (False, "10", ("train", "test")), (True, "01", (".",))],
)
def test_default_words_are_the_papers(tmp_path, upper, order, folders):
    spoken = write_timit(tmp_path, upper=upper, order=order, folders=folders)
    whole = load_without_cache(f"timit:{tmp_path}")
    assert whole.words == WORDS_OF_THE_PAPER
    assert [whole.clusters[word] for word in whole.words] == [i for i in range(1, 6) for _ in range(5)]
    assert (len(whole.train), len(whole.test)) == (125, 50)
    assert (whole.name, whole.source, whole.synthetic) == ("timit", "TIMIT: the paper's 25 words", False)
    for each in whole.utterances:
        np.testing.assert_array_equal(each.features, compute_part(*spoken[each.word, each.speaker]))
    for word in WORDS_OF_THE_PAPER:
        speakers = [each.speaker for each in whole.utterances if each.word == word]
        assert speakers == order_speakers(word, [f"{'fm'[j % 2]}sp{j}0" for j in range(8)])[:7]
        assert [each.split for each in whole.utterances if each.word == word] == ["train"] * 5 + ["test"] * 2


def test_all_layouts_are_the_same_corpus(tmp_path):
    write_timit(tmp_path / "a")
    write_timit(tmp_path / "b", upper=False, order="10", folders=("everything",))
    assert load_without_cache(f"timit:{tmp_path / 'a'}").digest == load_without_cache(f"timit:{tmp_path / 'b'}").digest


def test_words_can_be_chosen(tmp_path):
    write_timit(tmp_path, speakers=4)
    whole = load_without_cache(f"timit:{tmp_path}", words=["Water", "making"], speakers=4, test=1)
    assert (whole.words, whole.clusters) == (("water", "making"), {"water": 1, "making": 1})
    assert (len(whole.train), len(whole.test)) == (6, 2)
    assert whole.source == "TIMIT: words of one's choice"
    with pytest.raises(WordsError, match="expected two or more different words, got 'water', 'water'"):
        load_without_cache(f"timit:{tmp_path}", words=["Water", "water"], speakers=4, test=1)
    some = load_without_cache(f"timit:{tmp_path}", words=["critical", "making"], speakers=4, test=1)
    assert some.clusters == {"critical": 2, "making": 1}


def test_words_with_too_few_speakers_are_reported(tmp_path):
    write_timit(tmp_path, words=[word for word in WORDS_OF_THE_PAPER if word != "leeway"])
    for path in tmp_path.glob("TEST/*/*/*.WRD"):
        path.write_text(path.read_text().replace("cyclical", "bicycle"))
    with pytest.raises(CorpusError) as refused:
        load_without_cache(f"timit:{tmp_path}")
    assert refused.type is CorpusError
    rest = ",".join(word for word in WORDS_OF_THE_PAPER if word not in ("cyclical", "leeway"))
    assert refused.value.problems == (
        "cyclical: 7 speakers are needed, 4 say it",
        "leeway: 7 speakers are needed, 0 say it",
        f"choose words with enough speakers: --words {rest}",
    )
    assert len(load_without_cache(f"timit:{tmp_path}", words=rest.split(",")).words) == 23


def test_first_example_of_a_speaker_is_used(tmp_path):
    """Examples are ordered by the name of the sentence, then by the place in it."""
    write_timit(tmp_path, speakers=7)
    folder = next(tmp_path.glob("TRAIN/*/FSP00"))
    for seed, sentence in enumerate(("SI9", "SA2"), start=100):
        (folder / f"{sentence}.WAV").write_bytes(encode_sphere(make_signal(["making", "making"], seed)))
        (folder / f"{sentence}.WRD").write_text(make_transcript(["making", "making"]))
    whole = load_without_cache(f"timit:{tmp_path}")
    (found,) = (each for each in whole.utterances if (each.word, each.speaker) == ("making", "fsp00"))
    assert found.source == "TRAIN/DR1/FSP00/SA2.WRD line 1, SA2.WAV"


def test_example_shorter_than_a_window_is_ignored(tmp_path):
    write_timit(tmp_path, speakers=7)
    path = next(tmp_path.glob("TRAIN/*/FSP00/SA1.WRD"))
    path.write_text("0 399 making\n" + path.read_text())
    assert len(load_without_cache(f"timit:{tmp_path}").utterances) == 175
    path.write_text("0 400 making\n")
    assert min(len(each.features) for each in load_without_cache(f"timit:{tmp_path}").utterances) == 1


def test_riff_copies_are_read(tmp_path):
    """Some copies of TIMIT have SA1.WAV.wav, with or without SA1.WAV."""
    spoken = write_timit(tmp_path, speakers=7)
    for path in list(tmp_path.rglob("*.WAV")):
        words = [line.split()[2] for line in path.with_suffix(".WRD").read_text().splitlines()]
        write_sound(path.with_name(f"{path.name}.wav"), make_signal(words, int(path.parent.name[3])), subtype="PCM_16")
        path.unlink()
    for each in load_without_cache(f"timit:{tmp_path}").utterances:
        np.testing.assert_array_equal(each.features, compute_part(*spoken[each.word, each.speaker]))


def test_one_report_lists_every_problem(tmp_path):
    write_timit(tmp_path, speakers=7)
    one, two, three = (next(tmp_path.glob(f"*/*/{name}")) for name in ("FSP00", "MSP10", "FSP20"))
    shorten = encode_sphere([], count=9999, coding="pcm,embedded-shorten-v2.00") + b"ajkg\x02" + bytes(100)
    (one / "SX0.WAV").write_bytes(shorten)
    (two / "SX1.WAV").write_bytes((two / "SX1.WAV").read_bytes()[:5000])
    (three / "SX2.WAV").unlink()
    (three / "SA1.WRD").write_text("one two making\n\n10 10 Subway\n10 10 she\n")
    with pytest.raises(CorpusError) as refused:
        load_without_cache(f"timit:{tmp_path}")
    text = str(refused.value)
    assert text.count("SX0.WAV: compressed with shorten: convert it with the tool sph2pipe") == 5
    assert text.count("SX1.WAV: truncated: ") == 5
    assert text.count("SX2.WAV: cannot be read: No such file") == 5
    assert "FSP20/SA1.WRD line 1: expected 'first last word', got 'one two making'" in text
    assert "FSP20/SA1.WRD line 3: expected 'first last word', got '10 10 Subway'" in text
    assert len(refused.value.problems) == 17


def test_bad_line_is_reported_if_it_may_have_a_chosen_word(tmp_path):
    write_timit(tmp_path, speakers=7)
    path = next(tmp_path.glob("*/*/FSP20/SA1.WRD"))
    path.write_text("one two water\n17\n" + path.read_text())
    assert len(load_without_cache(f"timit:{tmp_path}").utterances) == 175
    with pytest.raises(CorpusError, match="SA1.WRD line 1: expected 'first last word', got 'one two water'") as refused:
        load_without_cache(f"timit:{tmp_path}", words=["water", "making"])
    assert len(refused.value.problems) == 1
    with pytest.raises(CorpusError, match="SA1.WRD line 2: expected 'first last word', got '17'"):
        load_without_cache(f"timit:{tmp_path}", words=["making", "zebra"])


def test_bad_line_that_may_have_a_word_of_the_sample_is_reported(tmp_path):
    write_nltk_sample(tmp_path)
    path = next(tmp_path.glob("*/sa1.wrd"))
    path.write_text(path.read_text().replace(" water", "  water").replace("500 ", "x ", 1))
    with pytest.raises(CorpusError, match="sa1.wrd line 1: expected 'first last word'"):
        load_without_cache(f"nltk-timit:{tmp_path}")


def test_only_bad_lines_are_reported(tmp_path):
    (tmp_path / "a.wrd").write_text("nonsense")
    with pytest.raises(CorpusError, match="(?s)a.wrd line 1: expected.*has no words"):
        load_without_cache(f"timit:{tmp_path}")


def test_place_beyond_the_end_of_the_file_is_reported(tmp_path):
    write_timit(tmp_path, speakers=7)
    path = next(tmp_path.glob("*/*/FSP00/SX0.WRD"))
    path.write_text("0 99999 making\n" + path.read_text())
    with pytest.raises(CorpusError, match=r"SX0.WRD line 1, SX0.WAV: the word is at samples 0 to 99999, but"):
        load_without_cache(f"timit:{tmp_path}")


def test_folder_without_transcripts_is_reported(tmp_path):
    for kind in ("timit", "nltk-timit"):
        with pytest.raises(CorpusError, match="has no words: expected files such as DR1/FCJF0/SA1.WRD below it"):
            load_without_cache(f"{kind}:{tmp_path}")


def test_default_words_of_the_sample_are_those_that_all_speakers_read(tmp_path):
    spoken = write_nltk_sample(tmp_path)
    whole = load_without_cache(f"nltk-timit:{tmp_path}")
    # words of other sentences are left out, however many speakers say them
    assert whole.words == tuple(sorted(SA1 + SA2))
    assert len(whole.words) == 21
    assert set(whole.clusters.values()) == {1}
    assert (len(whole.train), len(whole.test)) == (105, 42)
    assert whole.name == "nltk-timit"
    assert whole.source == (
        "the sample of TIMIT that comes with NLTK, too small for the paper's 25 words: "
        "the words of its sentences sa1 and sa2"
    )
    for each in whole.utterances:
        np.testing.assert_array_equal(each.features, compute_part(*spoken[each.word, each.speaker]))
    some = load_without_cache(f"nltk-timit:{tmp_path}", words=["subway", "the"])
    assert (some.words, len(some.utterances)) == (("subway", "the"), 14)
    assert some.source.endswith("words of one's choice")


def test_too_small_a_sample_is_reported(tmp_path):
    write_nltk_sample(tmp_path, speakers=3)
    with pytest.raises(CorpusError, match="no word of the sentences sa1 and sa2 is spoken by 7 speakers"):
        load_without_cache(f"nltk-timit:{tmp_path}")
    with pytest.raises(WordsError, match=r"(?s)zebra: 3 speakers are needed, 0 say it.*--words WORD,WORD,\.\.\.$"):
        load_without_cache(f"nltk-timit:{tmp_path}", words=["water", "zebra"], speakers=3, test=1)
    with pytest.raises(WordsError, match=r"--words WORD,WORD,\.\.\.$"):
        load_without_cache(f"nltk-timit:{tmp_path}", words=["lion", "zebra"])


def test_sample_rate_is_16_khz(tmp_path):
    assert SAMPLE_RATE == 16000
    write_timit(tmp_path, speakers=3)
    whole = load_without_cache(f"timit:{tmp_path}", speakers=3, test=1)
    assert {len(each.features) for each in whole.utterances} == {1 + (LENGTH - 400) // 160}


def test_sound_at_another_sample_rate_is_refused(tmp_path):
    """The places in the transcript count samples at 16 kHz."""
    write_timit(tmp_path, speakers=3)
    path = next(tmp_path.glob("*/*/FSP00/SX0.WAV"))
    path.write_bytes(encode_sphere(make_signal(list(WORDS_OF_THE_PAPER[::5]), 0), sample_rate=8000))
    with pytest.raises(CorpusError) as refused:
        load_without_cache(f"timit:{tmp_path}", speakers=3, test=1)
    assert len(refused.value.problems) == 5
    for problem in refused.value.problems:
        assert problem.endswith("SX0.WAV: the sample rate is 8000 Hz, but the transcript counts samples at 16000 Hz")


def test_cache_does_not_hide_another_sample_rate(tmp_path):
    clip = Clip("yes", "s0", "train", write_sound(tmp_path / "a.wav", make_voice(1), 8000), "a", 0, 4000)
    assert load_features([clip], FeatureSettings(), cache=tmp_path / "cache")[1] == []
    counted = replace(clip, sample_rate=16000)
    assert len(load_features([counted], FeatureSettings(), cache=tmp_path / "cache")[1]) == 1


def test_links_are_followed_and_every_folder_is_read_once(tmp_path):
    write_timit(tmp_path / "disc", speakers=3)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "timit").symlink_to(tmp_path / "disc", target_is_directory=True)
    # a loop, and a second name for a speaker's folder
    (tmp_path / "disc" / "TRAIN" / "up").symlink_to(tmp_path / "mine", target_is_directory=True)
    speaker = next(tmp_path.glob("disc/*/*/FSP00"))
    (tmp_path / "mine" / "zzz").symlink_to(speaker, target_is_directory=True)
    whole = load_without_cache(f"timit:{tmp_path / 'mine'}", speakers=3, test=1)
    assert {each.speaker for each in whole.utterances} == {"fsp00", "msp10", "fsp20"}
    assert all(each.source.count("timit/") == 1 for each in whole.utterances)


def test_transcript_that_never_ends_is_reported(tmp_path):
    folder = tmp_path / "DR1" / "FCJF0"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "SA1.WRD")
    (folder / "SA2.WRD").write_bytes(b" " * 70_000)
    with pytest.raises(CorpusError) as refused:
        load_without_cache(f"timit:{tmp_path}")
    assert "DR1/FCJF0/SA1.WRD: cannot be read: it is not a regular file" in refused.value.problems
    assert "SA2.WRD: cannot be read: it has 70000 bytes, but may have 65536 at most" in str(refused.value)


def test_transcript_of_absurd_lines_is_reported(tmp_path):
    folder = tmp_path / "DR1" / "FCJF0"
    folder.mkdir(parents=True)
    # the sound beside it would have a name that no file can have
    name = "a" * 251
    (folder / f"{name}.WRD").write_text("-5 10 she\n20 10 she\n1 99999999999999999999 she\n\x1b[2J\n" + "x" * 5000)
    (folder / "again").symlink_to(tmp_path)
    with pytest.raises(CorpusError) as refused:
        load_without_cache(f"timit:{tmp_path}")
    assert [problem.rpartition("got ")[2] for problem in refused.value.problems[:4]] == [
        "'-5 10 she'", "'20 10 she'", "'1 99999999999999999999 she'", "'\\x1b[2J'",
    ]  # fmt: skip
    assert len(str(refused.value)) < 3000
