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
TAKES_A_GRAPH = {"exchange", "loader", "sampler"}
TAKES_A_CACHE = TAKES_A_GRAPH | {"memory"}
ROW_KEYS = {"bench", "case", "value", "unit", "limit", "ratio", "threads", "median", "min", "max", "spread",
            "repetitions", "checksum", "run"}
RUN_KEYS = {"commit", "build", "time", "cpu", "cores", "kernel", "seed", "small", "graph"}
GRAPH_KEYS = {"kind", "nodes", "edges", "seed", "parts"}
# What must be there, as (case, unit); with two cores there is more.
EXPECTED = {
    "cache": {("own", "rows/batch"), ("remote without cache", "rows/batch"), ("remote with cache", "rows/batch"),
              ("saved", "share of remote"), ("saved, expected by vip", "share of remote"), ("lookup", "ns/remote row"),
              ("table", "bytes/cached row"), ("cached", "rows")},
    "limits": {("random 64-byte reads, 4 KiB pages", "reads/s"), ("random 64-byte reads, huge pages", "reads/s"),
               ("memcpy", "GB/s"), ("array", "bytes")},
    "sampler": {("random 64-byte reads, 4 KiB pages", "reads/s"), ("random 64-byte reads, huge pages", "reads/s"),
                ("uniform", "edges/s"), ("uniform", "batches/s"), ("uniform", "ns/edge"),
                ("uniform", "x unordered_map"), ("uniform", "faults/batch"), ("uniform", "share of core"),
                ("unordered_map", "edges/s"), ("unordered_map", "batches/s"), ("unordered_map", "ns/edge"),
                ("uniform, edge ids", "edges/s"), ("with replacement", "edges/s"), ("with replacement", "x uniform"),
                *((name, unit) for unit in ("edges/s", "x uniform")
                  for name in ("disjoint", "temporal", "temporal, most recent", "weighted", "weighted, with replacement",
                               "LABOR")),
                ("random walks", "edges/s"), ("node2vec", "edges/s"), ("importance, 2 hops", "edges/s"),
                ("induced, 2 hops", "edges/s"),
                ("batch", "edges/batch"), ("batch", "nodes/batch"),
                ("process", "bytes at peak")},
    "features": {(f"{floats} floats, {what}", unit) for floats in (100, 128, 1024, 50000)
                 for what, unit in (("own", "GB/s"), ("remote, libfabric", "GB/s"), ("remote, TensorPipe", "GB/s"),
                                    ("half remote, libfabric", "GB/s"), ("half remote, TensorPipe", "GB/s"),
                                    ("remote, libfabric", "x TensorPipe"), ("remote, libfabric over shm", "GB/s"),
                                    ("half remote, libfabric over shm", "GB/s"),
                                    ("remote, libfabric over shm", "x TensorPipe"))}
                | {(f"{floats} floats, remote, read, libfabric{over}", "GB/s") for floats in (1024, 50000)
                   for over in ("", " over shm")},
    "loader": {(f"{case}, {work}", unit) for case in ("local", "tensorpipe", "tcp")
               for work, units in (("sampling alone", ("batches/s",)), ("pulling alone", ("batches/s",)),
                                   ("sampling and pulling", ("batches/s", "x one after the other", "GB/s", "remote share",
                                                             "prefetched share")),
                                   ("processor time", ("us/batch",)), ("of it in the kernel", ("us/batch",)),
                                   ("thread farhop-sample", ("us/batch",)), ("cores in use", ("share of core",)))
               for unit in units} | {("batch", "nodes/batch")},
    "memory": {(f"{layout}, 10 rows: {what}", "bytes")
               for layout in ("2 threads", "2 processes", "2 processes, 2 machines")
               for what in ("/dev/shm, growth", "anonymous, started", "anonymous, growth by sampling", "pulled rows held",
                            "anonymous, growth by pulling", "anonymous, growth at peak", "anonymous, growth left",
                            "proportional (PSS)", "shared memory (shm, memfd)", "page cache shared", "page cache, by each",
                            "features read, never pulled")} | {("all", "held")},
    "startup": {(case, unit) for case in ("gate", "sleep:0.2", "at once")
                for unit in ("s until ready", "x settled memory", "bytes at peak", "bytes settled", "descriptors/process",
                             "connections/process")},
    "exchange": {("random 64-byte reads, 4 KiB pages", "reads/s"), ("random 64-byte reads, huge pages", "reads/s"),
                 ("local", "edges/s"), ("process 0", "edges/s"), ("process 1", "edges/s"),
                 ("processor time", "us/batch"), ("stage none", "us/batch")}
                | {(f"exchange, {n} under way", unit) for n in (1, 2, 4, 8)
                   for unit in ("edges/s", "x local per core", "x local per processor time",
                                "batches/s", "faults/batch", "remote share", "payload bytes/remote edge",
                                "bytes/remote edge", "requests/batch", "messages/batch", "share of core")}
                | {(f"stage {name}", "us/batch")
                   for name in ("bucket", "serialize", "own draw", "wait", "check replies", "relabel", "serve: decode",
                                "serve: draw", "serve: reply")},
}


def check(condition, message):
    if not condition:
        sys.exit(f"{NAME}: {message}")


def run(directory, *arguments):
    """Returns (table, rows)."""
    out = directory / "rows.json"
    command = [PROGRAM, NAME, "--small", "--json", str(out), *arguments]
    if NAME in TAKES_A_CACHE:
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
    if NAME == "cache":
        values = {row["case"]: row["value"] for row in rows}
        check(0 < values["remote with cache"] < values["remote without cache"], f"the cache saves nothing: {values}")
        check(abs(values["saved"] - values["saved, expected by vip"]) < 0.1, f"not as expected: {values}")
        check(values["table"] <= 8, f"too much private memory: {values}")
        _, two = run(directory, "--machines", "2")
        halved = {row["case"]: row["value"] for row in two}
        check(0 < halved["cached"] < values["cached"], "rows that the machine owns are not left out")
        check(checksums(two)["own"] != checksums(rows)["own"], "other machines have other seeds")
        refused = subprocess.run([PROGRAM, NAME], capture_output=True, text=True)
        check(refused.returncode == 1 and "name a store with --graph" in refused.stderr, f"not refused: {refused.stderr}")
    if NAME == "loader":
        sums, values = checksums(rows), {(row["case"], row["unit"]): row["value"] for row in rows}
        check(len(set(sums.values())) == 1 and len(sums) == 3, f"other rows come by another transport: {sums}")
        for case in ("tensorpipe", "tcp"):
            check(0.3 < values[f"{case}, sampling and pulling", "remote share"] < 0.7, "half of the rows should be remote")
        check(values["local, sampling and pulling", "remote share"] == 0, "rows of one's own are not remote")
        _, few = run(directory, "--transports", "tensorpipe", "--machines", "3")
        check({row["case"].split(",")[0] for row in few} == {"local", "tensorpipe", "batch"}, "only one transport was asked for")
        for arguments, text in ((["--transports", "pigeon"], "pigeon"), (["--parts", "2", "--machines", "3"], "too few for 3 machines")):
            refused = subprocess.run([PROGRAM, NAME, "--small", "--cache", str(directory / "cache"), *arguments], capture_output=True, text=True)
            check(refused.returncode == 1 and text in refused.stderr, f"not refused: {refused.stderr}")
    if NAME == "memory":
        values = {row["case"]: row["value"] for row in rows}
        unheld = [row["case"] for row in rows if row["unit"] == "held" and row["value"] != 1]
        check(not unheld, f"not held: {unheld}")
        check(sum(row["unit"] == "held" for row in rows) >= 20, "nothing was checked")
        check(values["2 threads, 10 rows: pulled rows held"] > 100_000, "nothing was pulled")
        check(values["2 processes, 2 machines, 10 rows: rows of other machines"] > 0, "no rows came from another machine")
        refused = subprocess.run([PROGRAM, NAME, "--small", "--trainer", str(directory / "none")], capture_output=True, text=True)
        check(refused.returncode == 1 and "needs libtorch" in refused.stderr, f"not refused: {refused.stderr}")
        broken = subprocess.run([PROGRAM, NAME, "--small", "--cache", str(directory / "cache"), "--trainer", "/bin/false"],
                                capture_output=True, text=True, timeout=100)
        check(broken.returncode == 1 and "exit code 1" in broken.stderr, f"no error: {broken.stderr}")
    if NAME == "startup":
        values = {(row["case"], row["unit"]): row for row in rows}
        for case in ("gate", "sleep:0.2", "at once"):
            check(values[case, "bytes settled"]["value"] > 4 * 10_000_000, f"{case}: a process with libtorch takes more")
            check(values[case, "bytes at peak"]["value"] > 0, f"{case}: nobody looked during the start")
            check(values[case, "connections/process"]["value"] >= 1, f"{case}: the machines are not connected")
            check(values[case, "descriptors/process"]["value"] > values[case, "connections/process"]["value"], case)
        check(values["gate", "x settled memory"]["limit"] == 1.05, "no limit")
        check(values["sleep:0.2", "s until ready"]["value"] > 0.2, "nobody slept")
        refused = subprocess.run([PROGRAM, NAME, "--small", "--trainer", str(directory / "none")], capture_output=True, text=True)
        check(refused.returncode == 1 and "needs libtorch" in refused.stderr, f"not refused: {refused.stderr}")
        broken = subprocess.run([PROGRAM, NAME, "--small", "--trainer", "/bin/false"], capture_output=True, text=True, timeout=100)
        check(broken.returncode == 1 and "the job has ended" in broken.stderr, f"no error: {broken.stderr}")
    if NAME == "exchange":
        sums = {case: checksum for case, checksum in checksums(rows).items() if case.startswith("exchange")}
        check(len(set(sums.values())) == 1, f"the number of batches under way changes what is sampled: {sums}")
        values = {(row["case"], row["unit"]): row["value"] for row in rows}
        case = "exchange, 4 under way"
        check(0.3 < values[case, "remote share"] < 0.7, "half of the edges should be remote")
        check(values[case, "requests/batch"] == 3, "one request per hop and peer")
        check(4 < values[case, "payload bytes/remote edge"] < values[case, "bytes/remote edge"], "payload is part of all bytes")
        _, parted = run(directory, "--parts", "5")
        check({checksums(parted)[case] for case in sums} == set(sums.values()), "other batches on 5 partitions than on 2")
        _, three = run(directory, "--machines", "3", "--batches", "2", "--under-way", "3", "--compare", "3")
        check(("process 2", "edges/s") in {(row["case"], row["unit"]) for row in three}, "no third process")
        refused = subprocess.run([PROGRAM, NAME, "--small", "--machines", "3", "--parts", "2"], capture_output=True, text=True)
        check(refused.returncode == 1 and "too few for 3 machines" in refused.stderr, f"not refused: {refused.stderr}")
print(f"{NAME}: {len(rows)} rows")
