"""Runs scripts/quickstart.sh as a newcomer does and holds its summary against what the README promises.

Needs apt's package index. Label "full": it takes minutes.
"""
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]

subprocess.run([ROOT / "scripts/quickstart.sh", "--no-install"], check=True, timeout=1500)
summary = json.loads((ROOT / "build/quickstart/summary.json").read_text())
assert summary["test_accuracy"] >= 0.70, summary["test_accuracy"]
assert summary["mlp_test_accuracy"] < summary["test_accuracy"]
assert len(summary["epochs"]) == 10 and len(summary["peak_rss_bytes"]) == 4
assert summary["train_seconds"] < 240, summary["train_seconds"]
assert summary["shm_feature_bytes"] == 0
print("ok")
