r"""Meta-commands, as `\dt+ sales`: what each is called, takes and does. Descriptions are those of the commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal

from duckicelake.cli import flush, history, snapshots
from duckicelake.cli.catalog import changes, description, session
from duckicelake.cli.catalog.connection import format_time, suggest_names
from duckicelake.cli.console.terminal import print_json, print_rows
from duckicelake.errors import BadInputError, format_count
from duckicelake.shell.file_copy import copy_rows
from duckicelake.shell.formats import FORMAT_NAMES, parse_format
from duckicelake.shell.view_statements import VIEW_STATEMENTS

if TYPE_CHECKING:
    from duckicelake.shell.interpreter import Interpreter

ArgumentKind = Literal["", "namespace", "object", "format", "profile", "file"]
Words = Sequence[str]
_WATCH_SECONDS: Final = 2.0
_HISTORY_ENTRIES: Final = 50


@dataclass(frozen=True, slots=True)
class Command:
    """A meta-command.

    Attributes:
        name: without the backslash.
        usage: its arguments, for people: those in brackets may be left out.
        text: what it does.
        run: gets the interpreter, the arguments, and whether the name had a `+`.
        first: what its first argument is, for completion.
        has_plus: the name may end with `+`.
        changes: it changes the lake.
        takes_statement: it may stand behind a statement instead of the semicolon.

    """

    name: str
    usage: str
    text: str
    run: Callable[[Interpreter, Words, bool], None]
    first: ArgumentKind = ""
    has_plus: bool = False
    changes: bool = False
    takes_statement: bool = False

    def check(self, words: Words) -> None:
        """Raise BadInputError if there are too few arguments, or too many."""
        named = self.usage.split()
        least = sum(not name.startswith("[") for name in named)
        if not least <= len(words) <= len(named):
            raise BadInputError(
                f"Expected \\{self.name} {self.usage}".rstrip() + f", and got {format_count(len(words), 'argument')}"
            )


def find_command(name: str) -> tuple[Command, bool]:
    """Find a command by its name, and whether that ends with `+`. Raises BadInputError."""
    plain = name.removesuffix("+")
    for command in COMMANDS:
        if command.name == plain and (plain == name or command.has_plus):
            return command, plain != name
    near = get_close_matches(plain, [command.name for command in COMMANDS], n=1)
    hint = f"did you mean \\{near[0]}?" if near else r"\? lists all"
    raise BadInputError(f"Unknown command \\{name}: {hint}")


def _list_catalogs(shell: Interpreter, _words: Words, _plus: bool) -> None:
    """Print the profiles, and where the server is duckicelake its warehouses."""
    from duckicelake.rest.profiles import list_profiles

    rest, rows = shell.session.rest, [("profile", name, uri) for name, uri in list_profiles()]
    if rest is not None and rest.client.is_duckicelake():
        found = rest.client.get("/management/v1/warehouses")["warehouses"]
        rows += [("warehouse", one["name"], one["location"]) for one in found]
    with shell.output.describe() as is_json:
        if is_json:
            print_json(*(dict(zip(("kind", "name", "address"), row, strict=True)) for row in rows))
        else:
            print_rows(("kind", "name", "address"), rows)


def _connect(shell: Interpreter, words: Words, _plus: bool) -> None:
    shell.connect(words[0])


def _list_kind(kind: str) -> Callable[[Interpreter, Words, bool], None]:
    def list_objects(shell: Interpreter, words: Words, has_plus: bool) -> None:
        lake, namespace = shell.session.lake, words[0] if words else ""
        found = [one for one in lake.list(namespace, is_recursive=True) if one.kind == kind]
        sizes = list(lake.sizes(namespace)) if has_plus and kind == "table" else None
        with shell.output.describe() as is_json:
            description.print_objects(found, sizes, as_json=is_json)

    return list_objects


def _describe(shell: Interpreter, words: Words, has_plus: bool) -> None:
    if not words:
        found = [one for one in shell.session.lake.list(is_recursive=True) if one.kind != "namespace"]
        with shell.output.describe() as is_json:
            description.print_objects(found, None, as_json=is_json)
    elif has_plus:
        _run_description(shell, description.show, words[0])
    else:
        with shell.output.describe() as is_json:
            columns = shell.session.lake.find(words[0]).columns
            print_json(*columns) if is_json else description.print_columns(columns)


def _run_description(shell: Interpreter, function: Callable[..., None], name: str, *more: str) -> None:
    lake = shell.session.lake
    with suggest_names(lake, name), shell.output.describe() as is_json:
        function(lake, name, *more, as_json=is_json)


def _list_snapshots(shell: Interpreter, words: Words, _plus: bool) -> None:
    with suggest_names(shell.session.lake, words[0]), shell.output.describe() as is_json:
        limit = parse_count(words[1], "how many snapshots") if len(words) > 1 else _HISTORY_ENTRIES
        description.list_snapshots(shell.session.lake, words[0], limit, as_json=is_json)


def _list_refs(shell: Interpreter, words: Words, _plus: bool) -> None:
    _run_description(shell, changes.list_refs, words[0])


def _list_files(shell: Interpreter, words: Words, _plus: bool) -> None:
    _run_description(shell, description.list_files, *words)


def _list_partitions(shell: Interpreter, words: Words, _plus: bool) -> None:
    _run_description(shell, description.list_partitions, *words)


def _list_history(shell: Interpreter, words: Words, _plus: bool) -> None:
    rest, name = shell.find_duckicelake(r"\history"), words[0] if words else None
    limit = parse_count(words[1], "how many changes") if len(words) > 1 else _HISTORY_ENTRIES
    no_filters = (None,) * 6
    with suggest_names(rest, name), shell.output.describe() as is_json:
        history.history_over_rest(rest, name, *no_filters, limit, is_json, False, None)


def _show_lineage(shell: Interpreter, words: Words, _plus: bool) -> None:
    rest = shell.find_duckicelake(r"\lineage")
    with suggest_names(rest, words[0]), shell.output.describe() as is_json:
        graph = rest.lineage(words[0])
        if is_json:
            print_json(graph)
            return
        names = {node.id: node.full_name for node in graph.nodes}
        rows = [
            (
                names[edge.source],
                names[edge.target],
                "" if edge.job is None else edge.job.name,
                format_time(edge.last_seen),
            )
            for edge in graph.edges
        ]
        print_rows(("from", "to", "by", "last seen (UTC)"), rows)


def _compare(shell: Interpreter, words: Words, _plus: bool) -> None:
    rest = shell.find_duckicelake(r"\diff")
    since, until = [*words[1:], None, None][:2]
    with suggest_names(rest, words[0]), shell.output.describe() as is_json:
        description.diff(rest, words[0], since, until, as_json=is_json)


def _show_caller(shell: Interpreter, _words: Words, _plus: bool) -> None:
    rest = shell.find_duckicelake(r"\whoami")
    with shell.output.describe() as is_json:
        session.whoami(rest, as_json=is_json)


def _set_snapshot(shell: Interpreter, words: Words, _plus: bool) -> None:
    at = None if not words or words[0] == "now" else words[0]
    shell.session.set_snapshot(at)
    shell.at = at


def _change_branch(shell: Interpreter, words: Words, _plus: bool) -> None:
    rest = shell.find_catalog(r"\branch")
    with suggest_names(rest, words[0]), shell.output.describe():
        changes.create_ref(rest, words[0], words[1], words[2] if len(words) > 2 else None)


def _drop_branch(shell: Interpreter, words: Words, _plus: bool) -> None:
    rest = shell.find_catalog(r"\unbranch")
    with suggest_names(rest, words[0]), shell.output.describe():
        changes.drop_ref(rest, words[0], words[1])


def _maintain(shell: Interpreter, words: Words, _plus: bool) -> None:
    rest = shell.find_duckicelake(r"\maintain")
    with suggest_names(rest, words[0]), shell.output.describe():
        flush.flush_over_rest(rest, words[0], None, 0)
        if len(words) > 1:
            snapshots.expire_over_rest(rest, words[0], words[1], 1, False)


def _restore(shell: Interpreter, words: Words, _plus: bool) -> None:
    rest = shell.find_duckicelake(r"\restore")
    with suggest_names(rest, words[0]), shell.output.describe():
        snapshots.restore_over_rest(rest, words[0], words[1], False)


def _expand(shell: Interpreter, words: Words, _plus: bool) -> None:
    shell.output.is_expanded = _parse_switch(words, is_on=shell.output.is_expanded)
    _say(f"expanded display is {'on' if shell.output.is_expanded else 'off'}")


def _time(shell: Interpreter, words: Words, _plus: bool) -> None:
    shell.has_timing = _parse_switch(words, is_on=shell.has_timing)
    _say(f"timing is {'on' if shell.has_timing else 'off'}")


def _watch(shell: Interpreter, words: Words, _plus: bool) -> None:
    """Repeat the last statement until Ctrl-C, or so many times."""
    if shell.last_sql is None:
        raise BadInputError(r"\watch repeats a statement, and there was none yet")
    seconds, left = _WATCH_SECONDS, parse_count(words[1], "how often") if len(words) > 1 else None
    if words:
        try:
            seconds = float(words[0])
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= 86_400:
            raise BadInputError(f"Invalid interval {words[0]!r}: expected seconds, as 2 or 0.5")
    while left is None or left > 0:
        shell.output.print_text(f"{time.strftime('%Y-%m-%d %H:%M:%S')} (every {seconds:g} s)\n")
        shell.run_sql(shell.last_sql)
        left = None if left is None else left - 1
        if left != 0:
            time.sleep(seconds)


def _edit(shell: Interpreter, _words: Words, _plus: bool) -> None:
    """Edit the last statement, or the one before the command, and run what the file has then."""
    shell.run_text(edit_text(f"{shell.last_sql};\n" if shell.last_sql else ""))


def edit_text(text: str) -> str:
    """Have a text edited by $VISUAL or $EDITOR, else vi. Raises BadInputError where that can't be run or fails."""
    import os
    import shlex
    import subprocess
    import tempfile
    from pathlib import Path

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="duckicelake-") as folder:
        file = Path(folder) / "statement.sql"
        file.write_text(text)
        try:
            ended = subprocess.run([*shlex.split(editor), str(file)], check=False)  # noqa: S603 - the user's own editor
        except (OSError, ValueError) as error:
            raise BadInputError(f"The editor {editor!r} can't be run: set EDITOR to one that is installed") from error
        if ended.returncode != 0:
            raise BadInputError(f"The editor {editor!r} ended with {ended.returncode}: nothing was run")
        return file.read_text()


def _redirect(shell: Interpreter, words: Words, _plus: bool) -> None:
    shell.output.redirect(words[0] if words else None)


def _include(shell: Interpreter, words: Words, _plus: bool) -> None:
    shell.run_file(words[0])


def _choose_format(shell: Interpreter, words: Words, _plus: bool) -> None:
    if words:
        shell.output.format = parse_format(words[0])
    _say(f"the format is {shell.output.format}; there are {', '.join(FORMAT_NAMES)}")


def _set(shell: Interpreter, words: Words, _plus: bool) -> None:
    if words[0] != "ON_ERROR_STOP":
        raise BadInputError(f"Unknown variable {words[0]!r}: there is ON_ERROR_STOP")
    shell.stops_on_error = _parse_switch(words[1:] or ["on"], is_on=False)


def _print_help(shell: Interpreter, _words: Words, _plus: bool) -> None:
    rows = [(f"\\{one.name}{'[+]' if one.has_plus else ''} {one.usage}".rstrip(), one.text) for one in COMMANDS]
    rows += [(f"{usage};", text) for usage, text in VIEW_STATEMENTS]
    with shell.output.describe() as is_json:
        if is_json:
            print_json(*({"command": name, "text": text} for name, text in rows))
        else:
            print_rows(("command", "what it does"), rows)


def _quit(shell: Interpreter, _words: Words, _plus: bool) -> None:
    shell.is_ended = True


COMMANDS: Final[Sequence[Command]] = (
    Command("l", "", "list profiles, and warehouses of the server", _list_catalogs),
    Command("c", "PROFILE", "connect to another profile or URI", _connect, "profile"),
    Command("dn", "[NAMESPACE]", "list namespaces", _list_kind("namespace"), "namespace"),
    Command(
        "dt", "[NAMESPACE]", "list tables; + adds rows, files, sizes", _list_kind("table"), "namespace", has_plus=True
    ),
    Command("dv", "[NAMESPACE]", "list views", _list_kind("view"), "namespace", has_plus=True),
    Command(
        "d", "[NAME]", "describe a table or view, or list both; + adds all the rest", _describe, "object", has_plus=True
    ),
    Command("snapshots", "TABLE [COUNT]", "list snapshots, the newest last", _list_snapshots, "object"),
    Command("refs", "TABLE", "list branches and tags", _list_refs, "object"),
    Command("files", "TABLE [AT]", "list data files of a snapshot", _list_files, "object"),
    Command("partitions", "TABLE [AT]", "list partitions of a snapshot", _list_partitions, "object"),
    Command("history", "[NAME] [COUNT]", "list changes, by whom and what engine", _list_history, "object"),
    Command("diff", "TABLE [FROM] [TO]", "compare two snapshots, times or refs", _compare, "object"),
    Command("lineage", "NAME", "list what a table comes from, and what comes from it", _show_lineage, "object"),
    Command("at", "[SNAPSHOT]", "query the lake as of a number, time or tag; without one: now", _set_snapshot),
    Command("branch", "TABLE NAME [AT]", "create a branch", _change_branch, "object", changes=True),
    Command("unbranch", "TABLE NAME", "drop a branch or tag", _drop_branch, "object", changes=True),
    Command(
        "restore", "TABLE TO", "make a table what it was at a snapshot, time or ref", _restore, "object", changes=True
    ),
    Command(
        "maintain",
        "TABLE [AGE]",
        "flush rows to files; expire snapshots older than 7d",
        _maintain,
        "object",
        changes=True,
    ),
    Command(
        "copy",
        "SOURCE to|from FILE",
        "copy a table or (query) to a file, or a file's rows to a table",
        copy_rows,
        "object",
    ),
    Command("format", "[FORMAT]", "choose how rows are printed", _choose_format, "format"),
    Command("x", "[on|off]", "print rows as records", _expand),
    Command("timing", "[on|off]", "print how long statements take", _time),
    Command("watch", "[SECONDS] [TIMES]", "repeat the last statement", _watch, takes_statement=True),
    Command("e", "", "edit the last statement in $EDITOR, and run it", _edit, takes_statement=True),
    Command("o", "[FILE]", "print results into a file; without one: here", _redirect, "file"),
    Command("i", "FILE", "run the statements of a file", _include, "file"),
    Command("whoami", "", "print who you are for the server, and what you may do", _show_caller),
    Command("set", "NAME [VALUE]", "set ON_ERROR_STOP, on or off", _set),
    Command("?", "", "list these commands", _print_help),
    Command("q", "", "leave; so does Ctrl-D", _quit),
)


def parse_count(text: str, what: str) -> int:
    """Parse a number of 1 or more. Raises BadInputError."""
    if not text.isdecimal() or int(text) < 1:
        raise BadInputError(f"Invalid number {text!r}: expected {what}, as 10")
    return int(text)


def _parse_switch(words: Words, *, is_on: bool) -> bool:
    if not words:
        return not is_on
    if words[0].lower() not in {"on", "off", "1", "0", "true", "false"}:
        raise BadInputError(f"Invalid value {words[0]!r}: expected on or off")
    return words[0].lower() in {"on", "1", "true"}


def _say(text: str) -> None:
    """Print what a setting is now, on standard error: it is no result."""
    import typer

    typer.echo(text, err=True)
