"""Reads and writes files of records, CSV or JSON lines, plain or gzipped: one dict per line, with its problems.

This module does not know jobs or machines. Each line is parsed by itself, so that a broken line does not affect the
next.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from dovetail import files
from dovetail.sim.fields import Field, Wrong, shown
from dovetail.sim.trace import TraceError

CSV, JSONL = "csv", "jsonl"
FORMAT_OF_SUFFIX = {".csv": CSV, ".jsonl": JSONL, ".ndjson": JSONL}  # suffix -> format
MOST_PROBLEMS = 20  # reported before reading stops
BUFFER_BYTES = 2**17  # of unpacked text
MAX_LINE_BYTES = 2**20  # a small gzip file can unpack to one line of gigabytes
MAX_LINES = 20_000_000  # a small gzip file can unpack to billions of empty lines
MAX_PROBLEMS_SKIPPED = 100_000  # with `skip_bad`: each problem is kept in memory, to be counted and shown
MOST_RECORDS = 5_000_000  # a small file can ask for many machines with `count`


class NamedRecord(Protocol):
    @property
    def name(self) -> str: ...


Record = TypeVar("Record", bound=NamedRecord)
Values = dict[str, Any]
Lines = Iterable[tuple[int, str]]  # number, from 1, and text
Build = Callable[
    [Values, int], Sequence[Record]
]  # (checked values, position among the rows) -> records; may raise Misfit


class Misfit(ValueError):
    """Values that are valid one by one, but not together."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class RowProblem:
    """One problem of a file. A row may have several."""

    path: Path
    line: int
    message: str
    costs_row: bool = True  # True: the row is left out. False for an unknown field, which is ignored

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def rows_left_out(path: Path, problems: Sequence[RowProblem]) -> int:
    """The number of rows of this file that were left out."""
    return len({problem.line for problem in problems if problem.path == path and problem.costs_row})


@dataclass(slots=True)
class RowProblems:
    """The problems of one file. Without `skip_bad` they end the reading; with it, bad rows are left out."""

    path: Path
    skip_bad: bool
    found: list[RowProblem] = field(default_factory=list)

    def add(self, line: int, message: str, costs_row: bool = True) -> None:
        self.found.append(RowProblem(self.path, line, message, costs_row))
        if not self.skip_bad and len(self.found) >= MOST_PROBLEMS:
            raise TraceError(*self.lines, f"{self.path}: {MOST_PROBLEMS} problems so far; the rest was not read")
        if len(self.found) > MAX_PROBLEMS_SKIPPED:
            some = self.lines[:MOST_PROBLEMS]
            raise TraceError(*some, f"{self.path}: more than {MAX_PROBLEMS_SKIPPED:,} problems; mend the file")

    @property
    def lines(self) -> list[str]:
        return [str(problem) for problem in self.found]

    def stop_if_any(self) -> None:
        if self.found and not self.skip_bad:
            raise TraceError(*self.lines)


def format_of(path: Path) -> str:
    """The format by the suffix, without `.gz`."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    if not suffixes or suffixes[-1] not in FORMAT_OF_SUFFIX:
        raise TraceError(f"{path}: the name does not say the format; call it .csv, .jsonl or .ndjson (also with .gz)")
    return FORMAT_OF_SUFFIX[suffixes[-1]]


def header_of(path: Path) -> tuple[str, ...]:
    """The columns of a CSV file; () if it cannot be read. `read` then reports why."""
    try:
        if format_of(path) != CSV:
            return ()
        with _unpacked(path) as (_, file):
            first = file.readline(2**16).decode("utf-8-sig")
        return tuple(cell.strip() for cell in _cells(first.rstrip("\r\n")))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error, TraceError):
        return ()


def read(
    path: Path, fields: Sequence[Field], build: Build[Record], what: str, skip_bad: bool
) -> tuple[list[Record], list[RowProblem]]:
    """The records of a file in its order, and its problems. `what` names the records in errors."""
    problems = RowProblems(path, skip_bad)
    records: list[Record] = []
    first_lines: dict[str, int] = {}  # name -> where it was first used
    for position, (line, row) in enumerate(_rows(path, fields, problems)):
        if (values := _checked(row, fields, line, problems)) is None:
            continue
        try:
            built = build(values, position)
        except Misfit as error:
            problems.add(line, f"{error.field}: {error}")
            continue
        twice = next((record.name for record in built if record.name in first_lines), None)
        if twice is not None:
            problems.add(line, f"name: {shown(twice)} was used in line {first_lines[twice]}; names must differ")
            continue
        if len(records) + len(built) > MOST_RECORDS:
            raise TraceError(f"{path}:{line}: more than {MOST_RECORDS:,} {what}; split the file")
        first_lines.update((record.name, line) for record in built)
        records.extend(built)
    problems.stop_if_any()
    if not records:
        raise TraceError(f"{path}: holds no {what}; it needs at least one", *problems.lines[:MOST_PROBLEMS])
    return records, problems.found


def _checked(row: Values, fields: Sequence[Field], line: int, problems: RowProblems) -> Values | None:
    """The parsed values of a row; None if any is wrong. Empty cells and nulls count as absent."""
    values: Values = {}
    sound = True
    for each in fields:
        given = row.get(each.name)
        if given is None or given == "":
            if each.required:
                problems.add(line, f"{each.name}: is missing; {each.fix}")
                sound = False
            continue
        try:
            values[each.name] = each.parse(given)
        except Wrong as error:
            problems.add(line, f"{each.name}: {shown(given)} is not {error}; {each.fix}")
            sound = False
    return values if sound else None


def _rows(path: Path, fields: Sequence[Field], problems: RowProblems) -> Iterator[tuple[int, Values]]:
    form = format_of(path)
    lines = _lines(path)
    return _csv_rows(lines, fields, problems) if form == CSV else _json_rows(lines, fields, problems)


@contextmanager
def _unpacked(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The file as it is on disk, and its text: the same stream unless it is gzipped."""
    with files.open_input(path) as raw:
        if path.suffix.lower() != ".gz":
            yield raw, raw
            return
        with io.BufferedReader(gzip.GzipFile(fileobj=raw), BUFFER_BYTES) as text:  # GzipFile.readline is slow
            yield raw, text


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not empty, with their numbers from 1. Holds one line at a time."""
    try:
        with _unpacked(path) as (raw, file):
            yield from _decoded(path, raw, file, files.max_bytes(files.MAX_TRACE_BYTES))
    except files.TooLarge as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}; {error.advice}") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise TraceError(f"{path}: cannot be read: {reason}") from error


def _decoded(path: Path, raw: BinaryIO, file: BinaryIO, limit: int) -> Iterator[tuple[int, str]]:
    before, number, blank = 0, 0, True
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if before + len(line) > limit:
            raise files.TooLarge(limit, None if file is raw else raw.tell())
        if len(line) > MAX_LINE_BYTES:
            raise TraceError(f"{path}:{number}: is longer than {MAX_LINE_BYTES:,} bytes; write one record per line")
        if number > MAX_LINES:
            raise TraceError(f"{path}: has more than {MAX_LINES:,} lines; split it")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            where = before + error.start
            raise TraceError(f"{path}: is not UTF-8 text (byte {where:,}); save it as UTF-8") from error
        before += len(line)
        if text := text.rstrip("\n"):
            blank = blank and not text.strip()
            yield number, text
    if blank:
        raise TraceError(f"{path}: is empty")


def _cells(line: str) -> list[str]:
    if '"' not in line:  # the usual case; a csv.reader for each line would take most of the time
        return line.split(",")
    return next(csv.reader([line], strict=True), [])


def _csv_rows(lines: Lines, fields: Sequence[Field], problems: RowProblems) -> Iterator[tuple[int, Values]]:
    columns: list[str] = []
    for number, line in lines:
        if not line.strip():
            continue
        try:
            cells = _cells(line.rstrip("\r"))
        except csv.Error as error:
            cells = []
            problems.add(number, f"is not CSV: {error}; a text with quotes or commas stands in quotes, on one line")
        if not columns:
            columns = _columns(cells, fields, number, problems)
        elif len(cells) == len(columns):
            yield number, dict(zip(columns, cells, strict=True))
        elif cells:
            problems.add(number, f"has {len(cells)} cells, the header has {len(columns)}; separate them by commas")


def _columns(cells: list[str], fields: Sequence[Field], number: int, problems: RowProblems) -> list[str]:
    columns = [cell.strip() for cell in cells]
    known = [each.name for each in fields]
    needed = [each.name for each in fields if each.required]
    place = f"{problems.path}:{number}"
    if not set(columns) & set(known):
        raise TraceError(f"{place}: is not a header; begin with a line such as {','.join(known[:5])}")
    if missing := [name for name in needed if name not in columns]:
        raise TraceError(f"{place}: the header lacks {', '.join(missing)}; add the column")
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise TraceError(f"{place}: the header has {shown(twice)} twice; rename or remove one")
    for name in columns:
        if name not in known:
            problems.add(number, _unknown(name, known), costs_row=False)
    return columns


def _json_rows(lines: Lines, fields: Sequence[Field], problems: RowProblems) -> Iterator[tuple[int, Values]]:
    known = [each.name for each in fields]
    complained: set[str] = set()  # unknown keys: each is reported once, not for every row
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "too deep or too long a number"
            problems.add(number, f'is not JSON: {reason}; write one object per line: {{"name": "a", …}}')
            continue
        if not isinstance(row, dict):
            problems.add(number, f'{shown(row)} is not an object; write one per line: {{"name": "a", …}}')
            continue
        for name in row:
            if name not in known and name not in complained:
                complained.add(name)
                problems.add(number, _unknown(name, known), costs_row=False)
        yield number, row


def _unknown(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"{shown(name)} is no field; {hint}"


def write(path: Path, rows: Sequence[Values], columns: Sequence[str]) -> None:
    """Write rows of plain values in the format of the path's suffix. The same rows give the same bytes."""
    text = _as_csv(rows, columns) if format_of(path) == CSV else _as_json(rows)
    data = text.encode()
    if path.suffix.lower() == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror or error}") from error


def _as_csv(rows: Sequence[Values], columns: Sequence[str]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = (row.get(column, "") for column in columns)
        writer.writerow("|".join(cell) if isinstance(cell, list) else cell for cell in cells)
    return out.getvalue()


def _as_json(rows: Sequence[Values]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
