from dataclasses import replace

import numpy as np
import pytest
import torch

from aicau import Direct, Eigen, Score, Strategy, View
from aicau.acquisition import ACQUISITIONS
from aicau.batching import BATCHINGS
from aicau.bias import BIASES
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.task import Task
from aicau.strategy import DEFAULTS


def test_every_string_of_the_design_is_understood():
    parsed = Strategy.parse("pemse:quadratic:eigen:difference")
    parts = (parsed.acquisition, parsed.bias, parsed.batching, parsed.difference)
    assert parts == (ACQUISITIONS["pemse"](), BIASES["quadratic"](), Eigen(), True)
    assert str(parsed) == "pemse:quadratic:eigen:difference"
    for text in (
        "random",
        "farthest",
        "lc",
        "bald",
        "lc:difference",
        "br:perfect",
        "br:perfect:top",
        "pemse:direct:eigen",
    ):
        assert Strategy.parse(text).name == text
    assert Strategy.parse("br:perfect").batching == BATCHINGS["top"]()
    assert Strategy.parse("farthest").batching == BATCHINGS["spread"]()
    assert Strategy.parse(" PEMSE:Direct ").name == "pemse:direct"
    assert Strategy.parse("pemse:direct:eigen", bias=Direct(alpha=1e-4)).bias == Direct(alpha=1e-4)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "pemsee:direct",
            "unknown acquisition 'pemsee'; did you mean 'pemse'? known: bald, br, default, entropy, epistemic",
        ),
        (
            "pemse:directly",
            "unknown strategy word 'directly'; did you mean 'direct'? known: brier, difference, direct, eigen, gain",
        ),
        ("pemse", "'pemse' needs a bias estimator, e.g. 'pemse:direct'; known: direct, perfect, posterior, quadratic"),
        ("lc:direct", "'lc' does not use the bias; leave out 'direct'"),
        ("br:direct:perfect", "names its bias twice"),
        ("random:eigen", "'random' always uses 'top' batching"),
        ("random:difference", "no difference version"),
        ("", "unknown acquisition ''"),
        ("default:eigen", "'default' stands alone; here it means 'br:posterior:gain'"),
    ],
)
def test_wrong_strings_are_refused_with_the_words_that_are_known(text, sentence):
    with pytest.raises(InputError) as error:
        Strategy.parse(text)
    assert sentence in str(error.value)


def test_a_difference_is_taken_where_there_is_a_round_before():
    strategy = Strategy.parse("lc:difference")
    every = torch.ones(1, 4, dtype=torch.bool)
    predictions = torch.tensor([[[0.0, 0, 0, 0], [1.0, 2, 3, 4]]])
    view = View(torch.rand(4, 1).double(), every, ~every, streams.runs(0, 1), predictions)
    before = Score(torch.tensor([[9.0, 1, 1, 1]]))
    for previous, expected in ((None, 3), (before, 0)):
        choice = strategy.choose(view, 1, previous)
        assert choice.selection.index.tolist() == [[expected]]
        assert choice.plain.alpha[0].tolist() == pytest.approx([0.25, 1, 2.25, 4])
    assert Strategy.parse("lc").choose(view, 1).plain is None  # nobody needs it


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    x = rng.random((40, 2)) * 6
    y = np.where(np.arange(40) < 15, np.sin(x).prod(1), np.nan)
    return x, y


@pytest.mark.parametrize(
    "text", ["random", "farthest", "lc", "bald", "pemse:direct:eigen", "pemse:direct:spread", "br:quadratic"]
)
def test_query_chooses_unlabelled_rows(table, text):
    x, y = table
    strategy = Strategy.parse(text)
    index, utilities = strategy.query(x, y, batch_size=4, return_utilities=True)
    assert len(set(index.tolist())) == 4
    assert min(index) >= 15
    assert utilities.shape == (4, 40)
    assert np.isnan(utilities[:, :15]).all()
    assert np.isnan(utilities[1, index[0]])
    np.testing.assert_array_equal(strategy.query(x, y, batch_size=4), index)


def test_query_with_candidates_by_index_and_by_features(table):
    x, y = table
    strategy = Strategy.parse("lc")
    by_index = strategy.query(x, y, candidates=[3, 20, 30])
    by_feature = strategy.query(x, y, candidates=x[[3, 20, 30]])
    assert [3, 20, 30][int(by_feature[0])] == int(by_index[0])
    _, utilities = strategy.query(x, y, candidates=x[20:], return_utilities=True)
    assert utilities.shape == (1, 20)


def test_top_by_query_is_the_largest_utility(table):
    x, y = table
    index, utilities = Strategy.parse("pemse:direct").query(x, y, return_utilities=True)
    assert int(index[0]) == int(np.nanargmax(utilities[0]))


def test_query_treats_equal_rows_as_replicates(table):
    x, y = table
    twice, labels = np.concatenate([x, x[:3]]), np.concatenate([y, [0.1, 0.2, 0.3]])
    index = Strategy.parse("farthest").query(twice, labels, batch_size=25)
    assert sorted(index.tolist()) == list(range(15, 40))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x, y: {"X": np.where(x > 5, np.nan, x), "y": y}, "X must be finite"),
        (lambda x, y: {"X": x, "y": y[:5]}, "one entry per row of X: 40"),
        (lambda x, y: {"X": x, "y": y, "candidates": [99]}, "outside X"),
        (lambda x, y: {"X": x, "y": y, "candidates": x[:, :1]}, "need 2 features"),
        (lambda x, y: {"X": x, "y": y, "candidates": []}, "no candidate|row numbers"),
        (lambda x, y: {"X": x, "y": y, "batch_size": 26}, "26 points were asked for and only 25"),
        (lambda x, y: {"X": x, "y": y, "batch_size": 0}, "batch_size must be a whole number"),
        (lambda x, y: {"X": x, "y": y * np.nan}, "needs at least one labelled row"),
        (lambda x, y: {"X": x, "y": np.where(np.isnan(y), y, np.inf)}, "y must be finite"),
    ],
)
def test_query_refuses_bad_tables(table, change, sentence):
    with pytest.raises(InputError, match=sentence):
        Strategy.parse("lc").query(**change(*table))


def test_query_with_one_label(table):
    x, y = table
    y = np.where(np.arange(40) == 0, 1.0, np.nan)
    for text in ("lc", "pemse:direct:eigen", "br:quadratic", "farthest"):
        assert len(Strategy.parse(text).query(x, y, batch_size=3)) == 3


def test_perfect_information_needs_a_problem(table):
    with pytest.raises(InputError, match="perfect information needs a problem"):
        Strategy.parse("br:perfect").query(*table)


def test_default_is_a_word():
    strategy = Strategy.parse("default")
    assert strategy.name == "default"
    word = DEFAULTS["regression"]
    assert replace(strategy, name=word) == Strategy.parse(word)


@pytest.mark.parametrize("task", [Task("classification", 2), Task("count")])
def test_default_depends_on_what_is_measured(task):
    word = DEFAULTS[task.name]
    strategy = Strategy.parse("default", task=task)
    assert strategy.name == "default"
    assert replace(strategy, name=word) == Strategy.parse(word, task=task)
