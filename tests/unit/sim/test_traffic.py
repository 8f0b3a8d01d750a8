from __future__ import annotations

import gzip
import statistics
from pathlib import Path

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.sim.scenario import make_scenario
from sparewatt.sim.traffic import TraceRequest, generate_trace, make_jobs, read_trace

BAD_BLOCKS = '{"t_ms":0,"input_tokens":1,"output_tokens":1,"prefix_blocks":[1,"a"]}\n'


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()))
    return path


def test_both_kinds_of_trace_are_read(tmp_path: Path) -> None:
    wanted = [TraceRequest(0.0, 10, 5), TraceRequest(1.5, 20, 0)]
    with_blocks = [TraceRequest(0.0, 10, 5, (1, 2)), TraceRequest(1.5, 20, 0)]
    table = write(tmp_path / "a.csv.gz", "t_ms,input_tokens,output_tokens\n1500,20,0\n0,10,5\n")
    lines = write(
        tmp_path / "a.jsonl.gz",
        '{"t_ms":0,"input_tokens":10,"output_tokens":5,"prefix_blocks":[1,2]}\n'
        '{"t_ms":1500,"input_tokens":20,"output_tokens":0}\n',
    )
    assert read_trace(table) == wanted
    assert read_trace(lines) == with_blocks


@pytest.mark.parametrize(
    "text",
    [
        "",
        "t_ms,input_tokens,output_tokens\n",
        "time,input\n1,2\n",
        "t_ms,input_tokens,output_tokens\n0,ten,5\n",
        "t_ms,input_tokens,output_tokens\n0,-1,5\n",
        "t_ms,input_tokens,output_tokens\nnan,1,5\n",
        "t_ms,input_tokens,output_tokens\n0,1\n",
    ],
)
def test_a_bad_table_is_named_and_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidField, match=r"bad\.csv\.gz"):
        read_trace(write(tmp_path / "bad.csv.gz", text))


@pytest.mark.parametrize(
    "text", ["{}\n", "[]\n", "nonsense\n", BAD_BLOCKS, '{"t_ms":null,"input_tokens":1,"output_tokens":1}\n']
)
def test_bad_lines_are_named_and_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidField, match=r"bad\.jsonl\.gz"):
        read_trace(write(tmp_path / "bad.jsonl.gz", text))


def test_a_file_that_is_not_packed_or_not_there_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "plain.csv.gz"
    plain.write_text("t_ms,input_tokens,output_tokens\n0,1,1\n")
    for path in (plain, tmp_path / "absent.csv.gz"):
        with pytest.raises(InvalidField):
            read_trace(path)


def test_the_generator_has_the_published_sizes() -> None:
    requests = generate_trace(4000.0, seed=1)
    assert len(requests) / 4000 == pytest.approx(5.5, rel=0.1)
    assert statistics.median(r.input_tokens for r in requests) == pytest.approx(1020, rel=0.1)
    assert statistics.mean(r.input_tokens for r in requests) == pytest.approx(1155, rel=0.1)
    assert statistics.median(r.output_tokens for r in requests) == pytest.approx(129, rel=0.1)
    assert statistics.mean(r.output_tokens for r in requests) == pytest.approx(211, rel=0.15)


def test_jobs_arrive_at_the_given_rate_in_order_of_time() -> None:
    jobs = make_jobs(generate_trace(120.0, seed=1), make_scenario(5, seed=1), rate=50.0, duration_s=100.0, seed=1)
    assert len(jobs) / 100 == pytest.approx(50.0, rel=0.05)
    times = [job.arrived_s for job in jobs]
    assert times == sorted(times)
