"""Statements and meta-commands are found in what is typed: quotes, comments and semicolons are SQL's."""

import pytest

from duckicelake.errors import BadInputError
from duckicelake.shell.statements import MetaCommand, Statement, is_complete, split_input


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("  -- nothing\n/* at /* all */ */ ", []),
        ("SELECT 1", [Statement("SELECT 1", is_ended=False)]),
        ("SELECT 1;SELECT 2;", [Statement("SELECT 1"), Statement("SELECT 2")]),
        (";;SELECT ';';;", [Statement("SELECT ';'")]),
        ("SELECT 'it''s; ok', \";\" ;", [Statement("SELECT 'it''s; ok', \";\"")]),
        (r"SELECT E'a\'; b';", [Statement(r"SELECT E'a\'; b'")]),
        ("SELECT $$;$$, $x$ $$;$x$;", [Statement("SELECT $$;$$, $x$ $$;$x$")]),
        ("SELECT 1 -- one;\n;", [Statement("SELECT 1 -- one;")]),
        ("SELECT 1 /* ; */;", [Statement("SELECT 1 /* ; */")]),
        ("\\dt+ sales", [MetaCommand("dt+", "sales")]),
        ("\\dt;\nSELECT 1;\\q", [MetaCommand("dt", ""), Statement("SELECT 1"), MetaCommand("q", "")]),
        ("SELECT 1 \\watch 2", [MetaCommand("watch", "2", "SELECT 1")]),
    ],
)
def test_splits(text: str, pieces: list[Statement | MetaCommand]) -> None:
    assert list(split_input(text)) == pieces


@pytest.mark.parametrize("text", ["SELECT 'a", 'SELECT "a', "SELECT $$a", "SELECT /* a", "SELECT 1", "SELECT\n1\n"])
def test_more_must_be_typed(text: str) -> None:
    assert not is_complete(text)


@pytest.mark.parametrize("text", ["", "\\dt", "SELECT 1;", "SELECT ';';", "SELECT 1; \\x", "-- only this"])
def test_nothing_more_must_be_typed(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize("text", ["SELECT 'a; \\dt", 'SELECT "a', "SELECT $x$ a $$", "/* /* */"])
def test_quote_that_does_not_end_is_an_error(text: str) -> None:
    with pytest.raises(BadInputError, match="A quote or comment doesn't end"):
        split_input(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sales.orders  5", ["sales.orders", "5"]),
        ("'a file''s name.csv' x", ["a file's name.csv", "x"]),
        ('"a.b"."c d" x', ["`a.b`.`c d`", "x"]),
        ("`a b`.t", ["`a b`.t"]),
        ("(SELECT max(a), ')' FROM t) to x.csv", ["(SELECT max(a), ')' FROM t)", "to", "x.csv"]),
    ],
)
def test_arguments_are_words_quotes_and_queries(text: str, words: list[str]) -> None:
    assert list(MetaCommand("copy", text).words) == words


@pytest.mark.parametrize("text", ["'a", '"a', "(SELECT 1", "`a", "'a'b"])
def test_argument_that_does_not_end_is_an_error(text: str) -> None:
    with pytest.raises(BadInputError, match="Invalid argument at"):
        MetaCommand("copy", text).words  # noqa: B018 - a property
