"""Runs farhop-sage as a user does, on a small store, and checks every key of its summary; then farhop-sgc.

Usage: sage_test.py FARHOP FARHOP_SAGE FARHOP_SGC
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from small_dataset import write_dataset  # noqa: E402

farhop, sage, sgc = sys.argv[1:4]


def run(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


with tempfile.TemporaryDirectory() as temporary:
    here = pathlib.Path(temporary)
    write_dataset(here / "raw")
    run(farhop, "partition", here / "raw", "--out", here / "store", "--parts", 2, "--add-reverse")
    output = run(farhop, "run", "--graph", here / "store", "--machines", 2, "--procs", 2, "--", sage, "--epochs", 8,
                 "--batch-size", 32, "--hidden", 16, "--fanouts", "5,5", "--prefetch", "--summary", here / "summary.json")
    summary = json.loads((here / "summary.json").read_text())
    smoothed = run(farhop, "run", "--graph", here / "store", "--machines", 2, "--procs", 2, "--", sgc, "--batch-size", 32)

epochs = re.findall(r"epoch +(\d+) ", output)
assert epochs == [str(e) for e in range(8)], f"one line per epoch, not {epochs}"
assert all(line.startswith("[m0 p0] ") for line in output.splitlines() if "epoch" in line), output
assert set(summary) == {
    "test_accuracy", "mlp_test_accuracy", "epochs", "parameters_hash", "sampled_edges_per_s", "remote_edge_share", "remote_feature_share",
    "cached_feature_share", "neighbor_bytes", "feature_bytes", "shm_feature_bytes", "peak_rss_bytes", "pull_wait_s",
    "prefetched_batches", "groups", "train_seconds"}, set(summary)
assert len(summary["epochs"]) == 8 and all(set(e) == {"loss", "val_accuracy", "seconds"} for e in summary["epochs"])
assert summary["epochs"][-1]["loss"] < summary["epochs"][0]["loss"]
assert summary["test_accuracy"] > 0.8, summary["test_accuracy"]
assert summary["test_accuracy"] > summary["mlp_test_accuracy"] + 0.05, "neighbours must help on this graph"
assert 0 < summary["remote_edge_share"] < 1 and 0 < summary["remote_feature_share"] < 1
assert summary["cached_feature_share"] == 0, "the store has no caches"
assert summary["neighbor_bytes"] > 0 and summary["feature_bytes"] > 0 and summary["shm_feature_bytes"] == 0
assert len(summary["pull_wait_s"]) == 4 and min(summary["pull_wait_s"]) > 0
assert len(summary["peak_rss_bytes"]) == 4 and min(summary["peak_rss_bytes"]) > 10_000_000
assert len(summary["prefetched_batches"]) == 4
groups = summary["groups"]
assert [g["group"] for g in groups] == [0, 1] and all(0 <= g["start_s"] <= g["ready_s"] for g in groups), groups
assert groups[1]["start_s"] >= groups[0]["ready_s"] - 0.05, "group 1 starts when group 0 is ready"
accuracy = float(re.fullmatch(r"\[m0 p0\] test accuracy (\S+)", smoothed.splitlines()[-1])[1])
assert accuracy > 0.8, smoothed
print("ok")
