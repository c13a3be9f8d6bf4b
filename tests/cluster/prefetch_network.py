#!/usr/bin/env python3
"""Trains on two machines that a slow network joins, with and without prefetch, and compares how long the trainer waits
for features.

    prefetch_network.py FARHOP SAGE [--store DIR] [--megabits 1000] [--epochs 3] [--fabric NAME] [--json FILE] ...
    prefetch_network.py FARHOP SAGE --functional

The machines are two network namespaces with a veth between them that `tc tbf` limits in both directions; each runs one
process of SAGE (the example) on a core of its own. Without --store the graph is Debian's packages in two partitions, made
with FARHOP. The exit code is 1 unless the wait with prefetch is less than a third of that without, in the median of the
repetitions. --functional trains once each way on a small graph, and checks that prefetch worked and changed no result; no
time matters then. Exit code 77: the kernel lets this user make no
network namespaces.

Namespaces have no names and live as long as the processes in them, which die with this one: nothing is left, however it
ends. Needs root, iproute2 and util-linux.
"""
import argparse
import ctypes
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
SKIPPED = 77
ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 29500  # in a namespace of its own, where nobody else listens
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Network:
    """Two namespaces, held by a sleeping process each, and the wire between them."""

    def __init__(self, megabits):
        self.holders = []
        try:
            self.build(megabits)
        except BaseException:
            self.close()
            raise

    def build(self, megabits):
        for _ in ADDRESSES:
            self.holders.append(subprocess.Popen(["unshare", "--net", "sleep", "86400"], preexec_fn=die_with_parent))
        own = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + 10
        for holder in self.holders:
            while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
                if holder.poll() is not None or time.monotonic() > deadline:
                    raise PermissionError("no network namespace can be made")
                time.sleep(0.01)
        one, other = (str(holder.pid) for holder in self.holders)
        # Both ends are made where they belong, so that they have no name here.
        self.inside(0, "ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire0", "netns", other)
        for side, address in enumerate(ADDRESSES):
            self.inside(side, "ip", "link", "set", "lo", "up")
            self.inside(side, "ip", "addr", "add", f"{address}/30", "dev", "wire0")
            self.inside(side, "ip", "link", "set", "wire0", "up")
            self.inside(side, "tc", "qdisc", "add", "dev", "wire0", "root", "tbf", "rate", f"{megabits}mbit",
                        "burst", "256kb", "latency", "20ms")

    def command(self, side, *arguments):
        return ["nsenter", f"--net=/proc/{self.holders[side].pid}/ns/net", *arguments]

    def inside(self, side, *arguments):
        done = subprocess.run(self.command(side, *arguments), capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise PermissionError(f"{' '.join(arguments)}: {done.stderr.strip()}")

    def bytes_sent(self, side):
        done = subprocess.run(self.command(side, "ip", "-s", "-j", "link", "show", "wire0"), capture_output=True, text=True,
                              timeout=30, check=True)
        return json.loads(done.stdout)[0]["stats64"]["tx"]["bytes"]

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()


def cores():
    """One core for each machine, the same for both where there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return [{usable[0]}, {usable[-1]}]


def train(network, options, prefetch, directory):
    """Returns the summary of one job, with the bytes that crossed the wire."""
    summary = directory / "summary.json"
    summary.unlink(missing_ok=True)
    processes = []
    before = [network.bytes_sent(side) for side in range(2)]
    try:
        for machine, core in enumerate(cores()):
            environment = {name: value for name, value in os.environ.items() if not name.startswith(("FARHOP_", "SLURM_"))}
            environment |= {"FARHOP_NUM_MACHINES": "2", "FARHOP_MACHINE": str(machine), "FARHOP_PROCS_PER_MACHINE": "1",
                            "FARHOP_PROC": "0", "FARHOP_MASTER_ADDR": ADDRESSES[0], "FARHOP_MASTER_PORT": str(PORT),
                            "FARHOP_JOB_ID": f"prefetch-{os.getpid()}", "FARHOP_JOB_TOKEN": f"prefetch-{os.getpid()}",
                            "FARHOP_START": "gate", "FARHOP_GRAPH": options.store, "FARHOP_FABRIC": options.fabric}

            def prepare(bound=core):
                die_with_parent()
                os.sched_setaffinity(0, bound)

            arguments = [options.sage, "--epochs", str(options.epochs), "--batch-size", str(options.batch_size)]
            arguments += ["--prefetch"] if prefetch else []
            arguments += ["--summary", str(summary)] if machine == 0 else []
            processes.append(subprocess.Popen(network.command(machine, *arguments), env=environment, preexec_fn=prepare,
                                              stdout=subprocess.DEVNULL))
        deadline = time.monotonic() + options.timeout
        for process in processes:
            code = process.wait(timeout=max(1, deadline - time.monotonic()))
            if code != 0:
                sys.exit(f"a trainer ended with exit code {code}")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    result = json.loads(summary.read_text())
    result["wire_bytes"] = sum(network.bytes_sent(side) - before[side] for side in range(2))
    return result


def wait_of(summary):
    return statistics.mean(summary["pull_wait_s"])


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{words[0]} ended with exit code {done.returncode}: {done.stdout}{done.stderr}")


def make_store(options, directory):
    if options.functional:
        from small_dataset import write_dataset
        write_dataset(directory / "raw")
    else:
        run(ROOT / "scripts" / "make_debian_dataset", "--out", directory / "raw")
    run(options.farhop, "partition", directory / "raw", "--out", directory / "store", "--parts", 2, "--method", "metis", "--add-reverse")
    return str(directory / "store")


def check_functional(network, options, directory):
    options.epochs, options.batch_size = 2, 32
    without, with_it = (train(network, options, prefetch, directory) for prefetch in (False, True))
    for summary in (without, with_it):
        if summary["wire_bytes"] < summary["feature_bytes"] / 2:
            sys.exit("the features have not come over the wire")
        if summary["remote_feature_share"] <= 0:
            sys.exit("no rows came from the other machine")
    if without["epochs"][0]["loss"] != with_it["epochs"][0]["loss"] or without["test_accuracy"] != with_it["test_accuracy"]:
        sys.exit(f"prefetch changes the result: {without['epochs']} and {with_it['epochs']}")
    if sum(with_it["prefetched_batches"]) == 0 or sum(without["prefetched_batches"]) != 0:
        sys.exit(f"prefetched {with_it['prefetched_batches']} batches with it and {without['prefetched_batches']} without")
    print(f"prefetched {sum(with_it['prefetched_batches'])} batches, {with_it['wire_bytes'] / 1e6:.1f} MB over the wire")


def measure(network, options, directory):
    rows = []
    for repetition in range(options.repetitions):
        for prefetch in (False, True) if repetition % 2 == 0 else (True, False):
            summary = train(network, options, prefetch, directory)
            rows.append({"repetition": repetition, "prefetch": prefetch, "wait_s": wait_of(summary),
                         "train_s": summary["train_seconds"], "wire_bytes": summary["wire_bytes"],
                         "loss": summary["epochs"][-1]["loss"]})
            print(f"{'with' if prefetch else 'without':7} prefetch: waited {rows[-1]['wait_s']:6.2f} s for features in "
                  f"{rows[-1]['train_s']:6.1f} s of training, {summary['wire_bytes'] / 1e6:6.0f} MB over the wire", flush=True)
    waits = {prefetch: [row["wait_s"] for row in rows if row["prefetch"] == prefetch] for prefetch in (False, True)}
    ratio = statistics.median(waits[True]) / statistics.median(waits[False])
    held = ratio < 1 / 3
    print(f"wait with prefetch: {ratio:.3f} of that without; less than a third: {'held' if held else 'not held'}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"megabits": options.megabits, "epochs": options.epochs,
                                                          "fabric": options.fabric, "ratio": ratio, "held": held,
                                                          "rows": rows}, indent=1) + "\n")
    return held


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("farhop")
    parser.add_argument("sage")
    parser.add_argument("--store")
    parser.add_argument("--megabits", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--fabric", default="none", help="FARHOP_FABRIC of the job")
    parser.add_argument("--timeout", type=float, default=600, help="seconds, of one job")
    parser.add_argument("--functional", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.sage = os.path.abspath(options.sage)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    try:
        network = Network(options.megabits)
    except (PermissionError, FileNotFoundError) as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    try:
        with tempfile.TemporaryDirectory() as path:
            options.store = os.path.abspath(options.store) if options.store else make_store(options, pathlib.Path(path))
            if options.functional:
                check_functional(network, options, pathlib.Path(path))
            elif not measure(network, options, pathlib.Path(path)):
                sys.exit(1)
    finally:
        network.close()


main()
