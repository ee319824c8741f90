"""Our own trace files: read back exactly, and no input, however broken, is worse than a sentence."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.sim.jobs_file import read_jobs, read_machines, write_jobs, write_machines
from dovetail.sim.load import load_jobs, load_machines, load_trace
from dovetail.sim.trace import Job, Machine, TraceError
from tests.properties import with_examples

SUFFIXES = (".csv", ".jsonl", ".ndjson", ".csv.gz", ".jsonl.gz")
File = Callable[[str, str | bytes], Path]

printable = st.characters(codec="utf-8", exclude_categories=("C", "Z"), include_characters=" ")
words = st.text(printable, min_size=1, max_size=12)
models = st.lists(words.filter(lambda word: "|" not in word and word == word.strip()), max_size=3).map(tuple)
moments = st.floats(0, 1e12, allow_nan=False)
wholes = st.integers(0, 10**9)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    gpus = draw(st.integers(0, 16))
    return Job(
        draw(words),
        cpu_milli=draw(wholes),
        memory_mib=draw(wholes),
        gpus=gpus,
        gpu_milli=draw(st.just(0) | st.integers(0, 1000)) if gpus else 0,
        gpu_memory_mib=draw(st.just(0) | wholes) if gpus else 0,
        models=draw(models),
        arrival=draw(moments),
        duration=draw(st.none() | moments),
        priority=draw(st.integers(-(10**9), 10**9)),
        pods=draw(st.integers(1, 100)),
        tenant=draw(st.just("") | words),
    )


machines = st.builds(Machine, words, wholes, wholes, st.integers(0, 16), st.just("") | words, wholes)


@pytest.fixture
def file(tmp_path: Path) -> File:
    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@with_examples(100)
@given(st.lists(jobs(), min_size=1, max_size=5, unique_by=lambda job: job.name), st.sampled_from(SUFFIXES))
def test_jobs_are_read_back_exactly(written: list[Job], suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"jobs{suffix}"
        write_jobs(path, written)
        assert read_jobs(path) == (written, [])
        assert load_jobs(path) == (written, [])
        before = path.read_bytes()
        write_jobs(path, read_jobs(path)[0])
        assert path.read_bytes() == before


@with_examples(100)
@given(st.lists(machines, min_size=1, max_size=5, unique_by=lambda machine: machine.name), st.sampled_from(SUFFIXES))
def test_machines_are_read_back_exactly(written: list[Machine], suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"nodes{suffix}"
        write_machines(path, written)
        assert read_machines(path) == (written, [])
        assert load_machines(path) == (written, [])


@pytest.mark.parametrize(
    ("row", "job"),
    [
        ('{"name": "a"}', Job("a")),
        ('{"name": "a", "gpus": 2}', Job("a", gpus=2, gpu_milli=1000)),  # says no more: wants them for itself
        ('{"name": "a", "gpus": 1, "gpu_memory_mib": 7500}', Job("a", gpus=1, gpu_memory_mib=7500)),
        ('{"name": "a", "gpus": 1, "gpu_milli": 0}', Job("a", gpus=1)),
        ('{"name": "a", "models": ["T4", "A10"], "duration": null}', Job("a", models=("T4", "A10"))),
        ('{"name": "a", "models": "T4|A10", "arrival": 2}', Job("a", models=("T4", "A10"), arrival=2.0)),
        ('{"name": "a", "cpu_milli": 1500.0}', Job("a", cpu_milli=1500)),
    ],
)
def test_what_is_not_said_has_a_default(file: File, row: str, job: Job) -> None:
    assert read_jobs(file("jobs.jsonl", row)) == ([job], [])


@pytest.mark.parametrize(
    "text", ["name,gpus\na,1\nb,2\n", "\ufeffname,gpus\r\na,1\r\n\r\nb,2\r\n", "gpus,name\n1,a\n2.0,b"]
)
def test_bom_crlf_blank_lines_and_order_of_columns_do_not_matter(file: File, text: str) -> None:
    jobs, _ = read_jobs(file("jobs.csv", text))
    assert [(job.name, job.gpus) for job in jobs] == [("a", 1), ("b", 2)]


def test_a_machine_with_a_count_is_many(file: File) -> None:
    path = file(
        "nodes.csv", "name,cpu_milli,memory_mib,gpus,model,count\ntrain,96000,393216,8,A10,2\nhead,8000,8192,,,\n"
    )
    machines, _ = read_machines(path)
    assert [(machine.name, machine.gpus) for machine in machines] == [("train-0", 8), ("train-1", 8), ("head", 0)]


def test_traces_are_sorted_by_arrival_and_then_as_in_the_file(file: File) -> None:
    pods = file("night.jsonl", '{"name":"z","arrival":5}\n{"name":"b","arrival":1}\n{"name":"a","arrival":1}\n')
    nodes = file("nodes.csv", "name,cpu_milli,memory_mib\nn,1000,1024\n")
    trace, _ = load_trace(nodes, pods)
    assert trace.name == "night"
    assert [job.name for job in trace.jobs] == ["b", "a", "z"]


BROKEN_CELLS = [
    ("gpu_milli", "1500", "gpu_milli: '1500' is not a whole number from 0 to 1,000; it is per GPU"),
    ("gpus", "-1", "gpus: '-1' is not a whole number from 0"),
    ("gpus", "1.5", "gpus: '1.5' is not a whole number"),
    ("gpus", "9" * 5000, "gpus: '999"),
    ("gpus", "1_0", "gpus: '1_0' is not"),
    ("gpus", "٣", "gpus: '٣' is not"),
    ("duration", "-5", "duration: '-5' is not a number of seconds from 0 to 1,000,000,000,000; leave it empty for"),
    ("duration", "nan", "duration: 'nan' is not a number of seconds"),
    ("arrival", "1e999", "arrival: '1e999' is not a number of seconds"),
    ("arrival", "soon", "arrival: 'soon' is not a number of seconds"),
    ("priority", "high", "priority: 'high' is not a whole number"),
    ("pods", "0", "pods: '0' is not a whole number from 1"),
    ("models", "T4||A10", "models: 'T4||A10' is not a"),
    ("tenant", "a\x1b[31m", "tenant: 'a\\x1b[31m' is not a text"),
    ("gpu_memory_mib", "5", "gpu_memory_mib: 5 of no GPU; set gpus to 1 or more"),
]


@pytest.mark.parametrize(("field", "cell", "says"), BROKEN_CELLS)
def test_a_broken_cell_names_file_line_and_field(file: File, field: str, cell: str, says: str) -> None:
    path = file("jobs.csv", f"name,{field}\ngood,\nbad,{cell}\nbetter,\n")
    with pytest.raises(TraceError) as caught:
        read_jobs(path)
    assert caught.value.lines[0].startswith(f"{path}:3: {says}")
    jobs, problems = read_jobs(path, skip_bad=True)
    assert [job.name for job in jobs] == ["good", "better"]
    assert [str(problem) for problem in problems] == list(caught.value.lines)


BROKEN_LINES = [
    ('{"name": "b", "gpus": true}', "gpus: True is not"),
    ('{"name": "b", "gpus": [1]}', "gpus: [1] is not"),
    ('{"name": "b", "arrival": NaN}', "arrival: nan is not"),
    ('{"name": "b", "duration": Infinity}', "duration: inf is not"),
    ('{"name": "b", "arrival": 1' + "0" * 400 + "}", "arrival: 1000"),
    ('{"name": "b", "gpus": 1' + "0" * 5000 + "}", "is not JSON"),
    ('{"name": "b", "models": [1]}', "models: [1] is not"),
    ('{"name": "b", "models": {"T4": 1}}', "models: {'T4': 1} is not"),
    ('{"name": 7}', "name: 7 is not a text"),
    ('{"name": ""}', "name: is missing; give every job a name"),
    ('{"gpus": 1}', "name: is missing"),
    ('{"name": "\\ud800"}', "name: '\\ud800' is not a text"),
    ('{"name": "b"', "is not JSON"),
    ("[" * 100_000, "is not JSON"),
    ('{"name": "b", "gpus": ' + "[" * 900 + "]" * 900 + "}", "gpus: "),
    ('["b"]', "['b'] is not an object"),
    ("null", "None is not an object"),
    ('{"name": "good"}', "name: 'good' was used in line 1; names must differ"),
]


@pytest.mark.parametrize(("line", "says"), BROKEN_LINES, ids=[line[:40] for line, _ in BROKEN_LINES])
def test_a_broken_line_names_file_and_line(file: File, line: str, says: str) -> None:
    path = file("jobs.jsonl", f'{{"name": "good"}}\n{line}\n{{"name": "better"}}\n')
    with pytest.raises(TraceError) as caught:
        read_jobs(path)
    assert caught.value.lines[0].startswith(f"{path}:2: {says}")
    jobs, problems = read_jobs(path, skip_bad=True)
    assert [job.name for job in jobs] == ["good", "better"]
    assert len(problems) == 1


def test_a_quote_swallows_no_other_line(file: File) -> None:
    path = file("jobs.csv", 'name,gpus\na,1\n"b,1\nc,1\n')
    jobs, [problem] = read_jobs(path, skip_bad=True)
    assert [job.name for job in jobs] == ["a", "c"]
    assert "jobs.csv:3: is not CSV" in str(problem)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("jobs.csv", "", "is empty"),
        ("jobs.csv", "\n \n", "is empty"),
        ("jobs.csv", "name,gpus\n", "holds no jobs"),
        ("jobs.csv", "a,1\nb,2\n", "jobs.csv:1: is not a header; begin with a line such as name,arrival"),
        ("jobs.csv", "gpus,arrival\n1,2\n", "the header lacks name"),
        ("jobs.csv", "name,name\na,b\n", "the header has 'name' twice"),
        ("jobs.csv", b"name\n\xff\xfe\x00\x01", "is not UTF-8 text (byte 5)"),
        ("jobs.csv", "name\n".encode("utf-16"), "is not UTF-8 text"),
        ("jobs.jsonl", bytes(range(256)), "is not UTF-8 text"),
        ("jobs.jsonl.gz", b"no gzip at all", "cannot be read"),
        ("jobs.csv.gz", gzip.compress(b"name\na\n" * 1000, mtime=0)[:-20], "cannot be read"),
        ("jobs.csv.gz", b"", "is empty"),
        ("jobs.xlsx", "name\na\n", "call it .csv, .jsonl or .ndjson"),
        ("jobs", "name\na\n", "call it .csv"),
    ],
)
@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_hopeless_file_is_a_clear_error(file: File, name: str, text: str | bytes, says: str, skip_bad: bool) -> None:
    with pytest.raises(TraceError) as caught:
        load_jobs(file(name, text), skip_bad)
    assert says in str(caught.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        load_jobs(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TraceError, match="directory"):
        load_jobs(tmp_path / "folder.csv")


def test_a_slip_in_a_column_is_said_once(file: File) -> None:
    path = file("jobs.csv", "name,gpu_mili,gpus\na,500,1\nb,500,1\n")
    with pytest.raises(TraceError, match=r"jobs\.csv:1: 'gpu_mili' is no field; did you mean gpu_milli\?"):
        read_jobs(path)
    jobs, problems = read_jobs(path, skip_bad=True)
    assert len(jobs) == 2
    assert len(problems) == 1
    lines = file("jobs.jsonl", '{"name": "a", "color": 1}\n{"name": "b", "color": 2}\n')
    jobs, problems = read_jobs(lines, skip_bad=True)
    assert len(jobs) == 2
    assert len(problems) == 1


def test_a_file_full_of_errors_is_given_up(file: File) -> None:
    path = file("jobs.csv", "name,gpus\n" + "a,x\n" * 1000)
    with pytest.raises(TraceError) as caught:
        read_jobs(path)
    assert len(caught.value.lines) == 21
    with pytest.raises(TraceError, match="holds no jobs"):
        read_jobs(path, skip_bad=True)


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    for job in (Job("a\nb"), Job("a", models=("T4|A10",)), Job("a", duration=float("nan")), Job("a", gpus=-1)):
        with pytest.raises(TraceError):
            write_jobs(tmp_path / "jobs.csv", [job])
    assert not (tmp_path / "jobs.csv").exists()
    with pytest.raises(TraceError, match="cannot be written"):
        write_jobs(tmp_path / "none" / "jobs.csv", [Job("a")])


@with_examples(100)
@given(st.binary(max_size=300), st.sampled_from(SUFFIXES), st.booleans())
def test_garbage_is_never_a_traceback(content: bytes, suffix: str, skip_bad: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        path.write_bytes(content)
        for load in (load_jobs, load_machines):
            with pytest.raises(TraceError):
                load(path, skip_bad)


cells = st.text(st.sampled_from('a1,|"\r\n\\-.e\x00é{}[]:'), max_size=12)


@with_examples(100)
@given(st.lists(cells, max_size=6), st.booleans())
def test_broken_rows_are_never_a_traceback(lines: list[str], skip_bad: bool) -> None:
    header = "name,arrival,duration,gpus,models"
    openb = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"
    with tempfile.TemporaryDirectory() as folder:
        for first, name in ((header, "a.csv"), (openb, "b.csv"), ("", "c.jsonl")):
            path = Path(folder) / name
            path.write_bytes("\n".join([first, *lines]).encode())
            try:
                jobs, _ = load_jobs(path, skip_bad)
            except TraceError:
                continue
            assert jobs
