"""Draws of the speakers: every seed divides them anew, one draw changes nothing, and bad requests are refused."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from experiments.words.test_timit import write_nltk_sample, write_timit
from support.html_pages import Page, fill_store
from support.made_corpora import make_pool
from support.made_records import make_words_record
from support.sound_files import make_voice, write_sound

from cwrnn.commands.main import main
from cwrnn.experiments import reproduce_words
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.report.page import write_store_report
from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.words.clips import order_speakers
from cwrnn.experiments.words.corpus import CorpusError, load_corpus
from cwrnn.experiments.words.draws import draw_corpora, load_draws
from cwrnn.experiments.words.task import WORDS


def list_speakers(corpus, split=None):
    return [(utterance.word, utterance.speaker) for utterance in corpus.utterances if split in (None, utterance.split)]


def write_folder(root, words=("no", "yes"), speakers=8):
    for number, word in enumerate(words):
        for i in range(speakers):
            write_sound(root / word / f"s{i}.wav", make_voice([number, i], 1600))
    return f"folder:{root}"


def test_every_draw_has_seven_speakers_of_each_word_and_divides_them_anew():
    pool = make_pool(speakers=9)
    corpora = draw_corpora(pool, 4)
    for draw, corpus in enumerate(corpora):
        assert (corpus.draw, corpus.name, corpus.pool) == (draw, f"pool, draw {draw}", "pool")
        assert Counter(word for word, _ in list_speakers(corpus, "train")) == {"a": 5, "b": 5, "c": 5}
        assert Counter(word for word, _ in list_speakers(corpus, "test")) == {"a": 2, "b": 2, "c": 2}
        assert len(set(list_speakers(corpus))) == 21
        for utterance in corpus.utterances:
            same = next(other for other in pool.utterances if other.source == utterance.source)
            assert utterance.features is same.features
            assert (utterance.word, utterance.speaker) == (same.word, same.speaker)
    assert len({corpus.digest for corpus in corpora}) == 4
    # words of one draw have speakers of their own
    assert len({tuple(speaker for each, speaker in list_speakers(corpora[1]) if each == word) for word in "abc"}) == 3


def test_a_draw_does_not_depend_on_the_number_of_draws_or_on_the_split_of_the_pool():
    few, many = draw_corpora(make_pool(), 2), draw_corpora(make_pool(), 5)
    assert [corpus.digest for corpus in few] == [corpus.digest for corpus in many[:2]]
    other = draw_corpora(make_pool(split=lambda i: "test" if i < 4 else "train"), 5)
    assert [corpus.digest for corpus in other] == [corpus.digest for corpus in many]


def test_speakers_are_drawn_evenly():
    pool, draws = make_pool(words=[f"w{i}" for i in range(10)], speakers=10), 60
    counts = Counter(speaker for corpus in draw_corpora(pool, draws) for _, speaker in list_speakers(corpus, "test"))
    # 120 expected; six standard deviations are 59
    assert set(counts) == {f"s{i}" for i in range(10)}
    assert all(abs(count - 120) < 59 for count in counts.values())


def test_draw_0_of_timit_is_the_corpus_without_draws(tmp_path):
    write_timit(tmp_path, speakers=9)
    plain = load_corpus(f"timit:{tmp_path}", cache=False)
    drawn = load_draws(f"timit:{tmp_path}", 3, cache=False)
    assert (drawn[0].name, drawn[0].digest, drawn[0].draw) == (plain.name, plain.digest, 0)
    assert [corpus.name for corpus in drawn] == ["timit", "timit, draw 1", "timit, draw 2"]
    word = plain.words[0]
    speakers = [speaker for each, speaker in list_speakers(drawn[2]) if each == word]
    assert speakers == order_speakers(word, [f"{'fm'[j % 2]}sp{j}0" for j in range(9)], 2)[:7]
    [only] = load_draws(f"timit:{tmp_path}", 1, cache=False)
    assert (only.name, only.digest) == (plain.name, plain.digest)


def test_one_draw_makes_the_runs_of_before():
    corpus = make_pool(split=lambda i: "train" if i < 7 else "test")
    asked = {"methods": ["srn"], "sizes": [500], "runs": 1, "epochs": 1, "workers": 1}
    before, now = reproduce_words(corpus, **asked), reproduce_words(corpus, draws=1, **asked)
    assert [record.key for record in now.records] == [record.key for record in before.records]
    assert [record.error for record in now.records] == [record.error for record in before.records]
    [record] = now.records
    assert (record.run.data, record.run.digest) == (corpus.name, corpus.digest)
    assert now.tasks[0].draws is None
    assert "draws" not in now.to_dict()


def test_a_folder_has_all_speakers_without_draws_and_seven_with_draws(tmp_path):
    source = write_folder(tmp_path / "mine")
    [plain] = load_draws(source, 1, cache=False)
    first, second = load_draws(source, 2, cache=False)
    assert (plain.name, len(plain.train), len(plain.test)) == ("mine", 12, 4)
    assert (first.name, len(first.train), len(first.test)) == ("mine, draw 0", 10, 4)
    assert second.name == "mine, draw 1"
    exactly = load_draws(write_folder(tmp_path / "seven", speakers=7), 2, cache=False)
    assert [corpus.name for corpus in exactly] == ["seven", "seven, draw 1"]
    assert exactly[0].digest == load_corpus(f"folder:{tmp_path / 'seven'}", cache=False).digest


def test_the_bundle_can_be_divided_anew():
    plain = load_corpus()
    first, second = load_draws("bundle", 2)
    assert first.digest == plain.digest
    assert set(list_speakers(second)) == set(list_speakers(plain))
    assert set(list_speakers(second, "test")) != set(list_speakers(plain, "test"))
    assert second.synthetic


@pytest.mark.parametrize(
    ("draws", "message"),
    [
        (0, "draws: expected at least 1, got 0"),
        (-3, "draws: expected at least 1, got -3"),
        (1001, "draws: expected at most 1000, got 1001"),
        (1.5, "draws: expected an integer, got 1.5"),
    ],
)
def test_numbers_of_draws_that_make_no_sense_are_refused(draws, message):
    with pytest.raises(ArgumentError) as refused:
        reproduce_words(make_pool(), draws=draws)
    assert str(refused.value) == message


def test_draws_that_would_be_alike_are_refused():
    """Two words of seven speakers can be divided in 441 ways."""
    with pytest.raises(ArgumentError, match=r"expected at most \d+, got 500: pool has so few words and speakers"):
        draw_corpora(make_pool(words="ab", speakers=7), 500)
    with pytest.raises(ArgumentError) as refused:
        draw_corpora(make_pool(words="ab", speakers=7), 500)
    most = int(str(refused.value).split("at most ")[1].split(",")[0])
    assert len(draw_corpora(make_pool(words="ab", speakers=7), most)) == most


def test_too_few_speakers_are_refused_before_training(tmp_path):
    with pytest.raises(ArgumentError) as refused:
        reproduce_words(make_pool(speakers=6), draws=2, out=tmp_path / "out")
    assert str(refused.value) == (
        "draws: a draw needs 7 speakers of each word, 5 for training and 2 for the test, but in pool 'a' has 6 "
        "speakers, 'b' has 6 speakers, 'c' has 6 speakers: expected 1, or words with enough speakers"
    )
    assert not (tmp_path / "out").exists()
    with pytest.raises(ArgumentError, match="'no' has 5 speakers, 'yes' has 5 speakers"):
        load_draws(write_folder(tmp_path / "few", speakers=5), 2, cache=False)
    write_nltk_sample(tmp_path / "sample", speakers=6)
    with pytest.raises(CorpusError, match="no word of the sentences sa1 and sa2 is spoken by 7 speakers"):
        load_draws(f"nltk-timit:{tmp_path / 'sample'}", 2, cache=False)


def test_a_split_of_the_source_is_not_overruled(tmp_path):
    write_folder(tmp_path)
    rows = [f"{word},s{i},{word}/s{i}.wav,{'train' if i < 6 else 'test'}" for word in ("no", "yes") for i in range(8)]
    (tmp_path / "manifest.csv").write_text("\n".join(["word,speaker,file,split", *rows]))
    assert len(load_draws(f"folder:{tmp_path}", 1, cache=False)) == 1
    with pytest.raises(ArgumentError, match=r"^draws: .* has a column split, which decides once and for all"):
        load_draws(f"folder:{tmp_path}", 2, cache=False)


def test_a_speaker_who_says_a_word_twice_is_refused():
    pool = make_pool()
    again = replace(pool, utterances=(*pool.utterances, replace(pool.utterances[3], source="again")))
    with pytest.raises(ArgumentError, match="in pool the speaker 's3' says 'a' 2 times"):
        draw_corpora(again, 2)


def test_a_sweep_over_draws_is_resumed_and_reported(tmp_path):
    pool, calls = make_pool(), []
    asked = {"methods": ["srn", "cw"], "sizes": [500], "runs": 2, "epochs": 1, "workers": 1, "out": tmp_path}
    reproduce_words(pool, draws=2, **asked)
    result = reproduce_words(pool, draws=3, resume=True, progress=calls.append, **asked)
    assert (calls[0].done, calls[0].total) == (8, 12)
    assert {record.run.data for record in result.records} == {f"pool, draw {draw}" for draw in range(3)}
    summary = result.tasks[0].draws
    assert summary.seeds == (0, 1, 2)
    assert [(row.method, row.draws, row.runs) for row in summary.rows] == [("srn", 3, 6), ("cw", 3, 6)]
    for row in summary.rows:
        for draw, mean in row.means.items():
            errors = [
                record.error
                for record in result.records
                if (record.run.method, record.run.data) == (row.method, f"pool, draw {draw}")
            ]
            assert mean == pytest.approx(sum(errors) / 2)
    assert "2 initial weights for each of 3 draws of the speakers" in " ".join(str(result).split())
    assert json.loads(json.dumps(result.to_dict()))["draws"]["seeds"] == [0, 1, 2]
    with Store.read(tmp_path) as store:
        assert {name: corpus.draw for name, corpus in store.corpora().items()} == {
            f"pool, draw {draw}": draw for draw in range(3)
        }
        assert [corpus.digest for corpus in store.corpora().values()] == [
            corpus.digest for corpus in draw_corpora(pool, 3)
        ]
    assert "Draws of the speakers" in Page(result.page.read_text()).text


def test_a_store_of_an_earlier_version_has_no_draw():
    corpus = make_pool()
    about, numbers = WORDS.pack(corpus)
    assert "draw" not in about
    assert WORDS.unpack(corpus.name, corpus.source, about, numbers).draw == 0
    drawn = draw_corpora(corpus, 2)[1]
    about, numbers = WORDS.pack(drawn)
    again = WORDS.unpack(drawn.name, drawn.source, json.loads(json.dumps(about)), numbers)
    assert (again.draw, again.digest, again.pool) == (1, drawn.digest, "pool")
    with pytest.raises(ValueError, match="its draw must be of type int"):
        WORDS.unpack(drawn.name, drawn.source, {**about, "draw": "1"}, numbers)


@pytest.fixture(scope="module")
def drawn_page(tmp_path_factory):
    """A page of six draws in which CW-RNNs are ahead, beside a corpus that was not drawn."""
    folder = tmp_path_factory.mktemp("drawn")
    corpora = draw_corpora(make_pool(), 6)
    other = make_pool(name="other")
    errors = {"srn": 0.6, "lstm": 0.4, "cw": 0.2}
    records = [
        make_words_record(errors[method] + 0.02 * draw + 0.01 * seed, corpus=corpus, method=method, seed=seed)
        for draw, corpus in enumerate(corpora)
        for method in errors
        for seed in range(2)
    ]
    records.append(make_words_record(0.9, corpus=other))
    with fill_store(folder, records, {each.name: each for each in [*corpora, other]}) as store:
        write_store_report(store, folder)
    return folder


def test_the_page_tells_the_spread_over_draws_from_that_within(drawn_page):
    page = Page((drawn_page / "index.html").read_text())
    numbers = json.loads((drawn_page / "summary.json").read_text())["words"]
    assert {"words-draws", "words-errors", "words-confusion"} <= set(page.ids)
    assert (drawn_page / "figures" / "words" / "draws.svg").is_file()
    for row, mean in zip(numbers["draws"]["rows"], (0.655, 0.455, 0.255), strict=True):
        assert row["mean"] == pytest.approx(mean)
        # the means lie 0.02 apart, the two runs of a draw 0.01
        assert row["between"] == pytest.approx(0.02 * 3.5**0.5)
        assert row["within"] == pytest.approx(0.01 / 2**0.5)
        assert f"{100 * row['between']:.1f} %" in page.text
        assert f"{100 * row['within']:.1f} %" in page.text
    assert [(test["better"], test["worse"]) for test in numbers["draws"]["tests"]] == [
        ("cw", "lstm"), ("cw", "srn"), ("lstm", "srn"),
    ]  # fmt: skip
    # two of 2^6 permutations are as extreme, and Holm's method triples it
    assert [test["p"] for test in numbers["draws"]["tests"]] == [pytest.approx(3 / 32)] * 3
    assert "The draws do not tell CW-RNN and LSTM apart" in page.text
    assert "for each of 6 draws of the speakers" in page.text
    assert [row["runs"] for row in numbers["rows"]] == [12] * 3
    assert [row["runs"] for row in numbers["other_rows"]["other"]] == [1]


def run_command(capsys, *arguments):
    """Run `cwrnn` and return its exit code, its output and its errors in one line."""
    code = main([*map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, " ".join(printed.err.split())


def test_the_commands_draw_speakers(tmp_path, capsys):
    source = write_folder(tmp_path / "mine", words=("maybe", "no", "yes"))
    quick = ("--data", source, "--draws", 2, "--runs", 1, "--epochs", 2, "--workers", 1, "--json", "--quiet")
    code, out, _ = run_command(
        capsys, "reproduce", "words", *quick, "--methods", "srn", "--sizes", 500, "--out", tmp_path / "words"
    )
    assert code == 0
    assert json.loads(out)["draws"]["seeds"] == [0, 1]
    assert json.loads(out)["data"] == ["mine, draw 0", "mine, draw 1"]
    # the SRNs are in the store already
    code, out, _ = run_command(
        capsys, "clocks", "choose", *quick, "--beside", "srn", "--size", 500, "--out", tmp_path / "words", "--resume"
    )
    assert code == 0
    assert json.loads(out)["chosen"].keys() == {"0", "1"}
    assert main(["report", str(tmp_path / "words")]) == 0
    with Store.read(tmp_path / "words") as store:
        assert len(store.records("words")) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--draws", "0"), "Invalid value for '--draws'"),
        (("--draws", "1001"), "Invalid value for '--draws'"),
        (("--draws", "2", "--words", "no,yes"), "--draws: a draw needs 7 speakers of each word"),
    ],
)
def test_wrong_draws_exit_with_2_and_make_no_folder(tmp_path, capsys, arguments, message):
    source = write_folder(tmp_path / "few", speakers=5)
    for command in (("reproduce", "words"), ("clocks", "choose")):
        code, _, err = run_command(capsys, *command, "--data", source, *arguments, "--out", tmp_path / "out")
        assert code == 2
        assert message in err
        assert not (tmp_path / "out").exists()
