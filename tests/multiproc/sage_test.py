"""Runs farhop-sage as a user does, on a small store, and checks every key of its summary; then farhop-sgc.

Usage: sage_test.py FARHOP FARHOP_SAGE FARHOP_SGC
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy

farhop, sage, sgc = sys.argv[1:4]


def write_dataset(directory):
    """Two classes that only a node's neighbours tell apart: features are noise with a faint sign, edges stay
    within the class."""
    random = numpy.random.default_rng(5)
    nodes, classes = 600, 3
    label = random.integers(0, classes, nodes)
    members = [numpy.flatnonzero(label == c) for c in range(classes)]
    source = numpy.repeat(numpy.arange(nodes), 6)
    destination = numpy.array([random.choice(members[label[s]]) for s in source])
    x = random.normal(0, 1, (nodes, 8)).astype(numpy.float32)
    x[numpy.arange(nodes), label] += 1.0
    directory.mkdir()
    numpy.save(directory / "edges.npy", numpy.stack([source, destination]))
    numpy.save(directory / "x.npy", x)
    numpy.save(directory / "label.npy", label.astype(numpy.int64))
    order = random.permutation(nodes)
    splits = {"train_set": order[:300], "validation_set": order[300:450], "test_set": order[450:]}
    tasks = ""
    for name, ids in splits.items():
        numpy.save(directory / f"{name}.npy", ids)
        tasks += f"    {name}:\n      - type: node\n        data:\n          - {{name: seeds, format: numpy, path: {name}.npy}}\n"
    (directory / "metadata.yaml").write_text(f"""dataset_name: three
graph:
  nodes: [{{type: node, num: {nodes}}}]
  edges: [{{type: "node:likes:node", format: numpy, path: edges.npy}}]
feature_data:
  - {{domain: node, type: node, name: x, format: numpy, path: x.npy}}
  - {{domain: node, type: node, name: label, format: numpy, path: label.npy}}
tasks:
  - name: class
    num_classes: {classes}
{tasks}""")


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
    "test_accuracy", "mlp_test_accuracy", "epochs", "sampled_edges_per_s", "remote_edge_share", "remote_feature_share",
    "cached_feature_share", "neighbor_bytes", "feature_bytes", "shm_feature_bytes", "peak_rss_bytes", "pull_wait_s",
    "groups", "train_seconds"}, set(summary)
assert len(summary["epochs"]) == 8 and all(set(e) == {"loss", "val_accuracy", "seconds"} for e in summary["epochs"])
assert summary["epochs"][-1]["loss"] < summary["epochs"][0]["loss"]
assert summary["test_accuracy"] > 0.8, summary["test_accuracy"]
assert summary["test_accuracy"] > summary["mlp_test_accuracy"] + 0.05, "neighbours must help on this graph"
assert 0 < summary["remote_edge_share"] < 1 and 0 < summary["remote_feature_share"] < 1
assert summary["cached_feature_share"] == 0, "the store has no caches"
assert summary["neighbor_bytes"] > 0 and summary["feature_bytes"] > 0 and summary["shm_feature_bytes"] == 0
assert len(summary["pull_wait_s"]) == 4 and min(summary["pull_wait_s"]) > 0
assert len(summary["peak_rss_bytes"]) == 4 and min(summary["peak_rss_bytes"]) > 10_000_000
groups = summary["groups"]
assert [g["group"] for g in groups] == [0, 1] and all(0 <= g["start_s"] <= g["ready_s"] for g in groups), groups
assert groups[1]["start_s"] >= groups[0]["ready_s"] - 0.05, "group 1 starts when group 0 is ready"
accuracy = float(re.fullmatch(r"\[m0 p0\] test accuracy (\S+)", smoothed.splitlines()[-1])[1])
assert accuracy > 0.8, smoothed
print("ok")
