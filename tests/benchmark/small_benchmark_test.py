"""Runs one benchmark at its small size and checks that what it reports is well-formed and complete; never a time.

    small_benchmark_test.py PROGRAM NAME
"""
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAM, NAME = sys.argv[1], sys.argv[2]
TAKES_A_GRAPH = {"sampler"}
ROW_KEYS = {"bench", "case", "value", "unit", "limit", "ratio", "threads", "median", "min", "max", "spread",
            "repetitions", "checksum", "run"}
RUN_KEYS = {"commit", "build", "time", "cpu", "cores", "kernel", "seed", "small", "graph"}
GRAPH_KEYS = {"kind", "nodes", "edges", "seed", "parts"}
# What must be there, as (case, unit); with two cores there is more.
EXPECTED = {
    "limits": {("random 64-byte reads, 4 KiB pages", "reads/s"), ("random 64-byte reads, huge pages", "reads/s"),
               ("memcpy", "GB/s"), ("array", "bytes")},
    "sampler": {("random 64-byte reads, 4 KiB pages", "reads/s"), ("random 64-byte reads, huge pages", "reads/s"),
                ("uniform", "edges/s"), ("uniform", "batches/s"), ("uniform", "ns/edge"),
                ("uniform", "x unordered_map"), ("uniform", "faults/batch"), ("uniform", "share of core"),
                ("unordered_map", "edges/s"), ("unordered_map", "batches/s"), ("unordered_map", "ns/edge"),
                ("uniform, edge ids", "edges/s"), ("with replacement", "edges/s"), ("with replacement", "x uniform"),
                ("batch", "edges/batch"), ("batch", "nodes/batch"),
                ("process", "bytes at peak")},
}


def check(condition, message):
    if not condition:
        sys.exit(f"{NAME}: {message}")


def run(directory, *arguments):
    """Returns (table, rows)."""
    out = directory / "rows.json"
    command = [PROGRAM, NAME, "--small", "--json", str(out), *arguments]
    if NAME in TAKES_A_GRAPH:
        command += ["--cache", str(directory / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    check(done.returncode == 0, f"exit code {done.returncode}: {done.stderr}")
    return done.stdout, json.loads(out.read_text())


def check_number(row, key):
    value = row[key]
    check(isinstance(value, (int, float)) and math.isfinite(value) and value >= 0, f"{key} of {row} is no number")


def check_row(row):
    check(set(row) == ROW_KEYS, f"keys {sorted(set(row) ^ ROW_KEYS)} are missing or unknown in {row}")
    check(row["bench"] == NAME, f"bench is {row['bench']}")
    for key in ("value", "median", "min", "max", "spread", "threads"):
        check_number(row, key)
    check(row["value"] == row["median"], f"value is not the median in {row}")
    check(row["min"] <= row["median"] <= row["max"], f"the median lies outside its range in {row}")
    check(len(row["repetitions"]) >= 1, f"no repetition in {row}")
    check(min(row["repetitions"]) == row["min"] and max(row["repetitions"]) == row["max"], f"wrong range in {row}")
    check((row["limit"] is None) == (row["ratio"] is None), f"limit without ratio, or the reverse, in {row}")
    if row["limit"] is not None:
        check(math.isclose(row["ratio"], row["value"] / row["limit"], rel_tol=1e-9), f"wrong ratio in {row}")
    check(row["checksum"] is None or re.fullmatch("[0-9a-f]{16}", row["checksum"]), f"no checksum: {row}")
    check(set(row["run"]) == RUN_KEYS, f"keys {sorted(set(row['run']) ^ RUN_KEYS)} are missing or unknown in run")
    check(re.fullmatch("unknown|[0-9a-f]{40}(-changed)?", row["run"]["commit"]), f"commit is {row['run']['commit']}")
    check(row["run"]["cores"] >= 1 and row["run"]["small"] is True, f"run is {row['run']}")
    if NAME in TAKES_A_GRAPH:
        check(set(row["run"]["graph"]) == GRAPH_KEYS, f"graph is {row['run']['graph']}")
        check(row["run"]["graph"]["edges"] > 0, f"graph is {row['run']['graph']}")


def checksums(rows):
    return {row["case"]: row["checksum"] for row in rows if row["checksum"] is not None}


with tempfile.TemporaryDirectory() as path:
    directory = pathlib.Path(path)
    table, rows = run(directory)
    check(isinstance(rows, list) and rows, "no rows")
    for row in rows:
        check_row(row)
        check(row["case"] in table and row["unit"] in table, f"not in the table: {row}")
    cells = [(row["case"], row["unit"]) for row in rows]
    check(len(set(cells)) == len(cells), "a case has two rows of one unit")
    missing = EXPECTED[NAME] - set(cells)
    check(not missing, f"no row for {sorted(missing)}")

    _, again = run(directory)
    check(checksums(rows) == checksums(again), "a second run has other checksums")
    if NAME == "sampler":
        sums = checksums(rows)
        check(sums["uniform"] == sums["unordered_map"], "the baseline does other work than the sampler")
        check(sums["uniform"] != sums["uniform, edge ids"], "edge ids are not in the checksum")
        _, parted = run(directory, "--parts", "3")
        check(checksums(parted) == sums, "other batches on 3 partitions than on 1")
        _, seeded = run(directory, "--seed", "2")
        check(checksums(seeded)["uniform"] != sums["uniform"], "the seed does not matter")
        check(seeded[0]["run"]["seed"] == 2, "the run does not say its seed")
        left = sorted(entry.name for entry in (directory / "cache").iterdir())
        check(len(left) == 2, f"the cache holds {left} instead of one graph per number of partitions")
print(f"{NAME}: {len(rows)} rows")
