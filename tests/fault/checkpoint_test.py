"""Ends farhop-sage at random steps, in every way, and starts it again: it ends with the parameters, to the last bit, of a
training that nothing disturbed.

Usage: checkpoint_test.py FARHOP FARHOP_SAGE [SEED]
"""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from small_dataset import write_dataset  # noqa: E402

farhop, sage = sys.argv[1:3]
seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
print(f"seed {seed}", flush=True)
chance = random.Random(seed)
EPOCHS = 9
STOPPED = 75


class Job:
    """farhop run of a training; finds its trainers by a variable of their environment."""

    def __init__(self, here, machines, procs, *more, hidden=16):
        self.mark = f"CHECKPOINT_TEST={uuid.uuid4()}"
        name, value = self.mark.split("=")
        command = [farhop, "run", "--graph", here / "store", "--machines", machines, "--procs", procs, "--", sage,
                   "--epochs", EPOCHS, "--batch-size", 4, "--hidden", hidden, "--fanouts", "5,5", "--dropout", 0.3,
                   "--threads", 1, "--summary", here / "summary.json", *more]
        self.process = subprocess.Popen([str(word) for word in command], env={**os.environ, name: value}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def trainers(self):
        found = []
        for directory in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                environment = (directory / "environ").read_bytes().split(b"\0")
                command = (directory / "cmdline").read_bytes().split(b"\0")[0]
            except OSError:
                continue
            if self.mark.encode() in environment and command == sage.encode():
                found.append(int(directory.name))
        return found

    def wait(self, seconds=120):
        try:
            output = self.process.communicate(timeout=seconds)[0]
        finally:
            self.process.kill()
            for pid in self.trainers():
                os.kill(pid, signal.SIGKILL)
        return self.process.returncode, output


def finished(job, here):
    code, output = job.wait()
    assert code == 0, f"exit code {code}\n{output}"
    return json.loads((here / "summary.json").read_text()), output


def version_of(path):
    return path.stat().st_ino if path.exists() else None


def disturb(here, saving, how):
    """Runs until it has saved once more, and a random while longer; then `how` goes to a random trainer."""
    saved = version_of(here / "saved" / "checkpoint")
    job = Job(here, 2, 2, *saving)
    deadline = time.monotonic() + 60
    while version_of(here / "saved" / "checkpoint") == saved and job.process.poll() is None:
        assert time.monotonic() < deadline, "nothing was saved"
        time.sleep(0.005)
    time.sleep(chance.random() * 0.2)
    trainers = job.trainers()
    assert len(trainers) == 4, f"the training was over, or not there: {job.wait()}"
    os.kill(chance.choice(trainers), how)
    return job.wait()


def check_refusals(here, saving):
    """Of a checkpoint in the middle of an epoch."""
    code, output = Job(here, 1, 2, *saving).wait()
    assert code == 1 and "the state is of 2 x 2 processes" in output, f"{code}\n{output}"
    code, output = Job(here, 2, 2, *saving, hidden=8).wait()
    assert code == 1 and "other widths" in output, f"{code}\n{output}"
    summary, output = finished(Job(here, 1, 2, *saving, "--resize"), here)
    assert "going on from" in output and len(summary["epochs"]) < EPOCHS, output
    path = here / "saved" / "checkpoint"
    path.write_bytes(path.read_bytes()[:-1000])
    code, output = Job(here, 2, 2, *saving).wait()
    assert code == 1 and "remove it to start anew" in output, f"{code}\n{output}"


with tempfile.TemporaryDirectory() as temporary:
    here = pathlib.Path(temporary)
    write_dataset(here / "raw")
    subprocess.run([farhop, "partition", here / "raw", "--out", here / "store", "--parts", "2", "--add-reverse"],
                   check=True, stdout=subprocess.DEVNULL, timeout=60)
    expected, _ = finished(Job(here, 2, 2), here)
    saving = ["--checkpoint", here / "saved", "--checkpoint-every", 5]
    for how in (signal.SIGKILL, signal.SIGUSR1, signal.SIGTERM):
        code, output = disturb(here, saving, how)
        if how == signal.SIGKILL:
            assert code not in (0, STOPPED), f"exit code {code}\n{output}"
        else:
            assert code == STOPPED and "stopped in epoch" in output, f"exit code {code}\n{output}"
    copy = (here / "saved" / "checkpoint").read_bytes()
    (here / "saved" / "checkpoint.new").write_bytes(b"half of one that a killed process has left")
    summary, output = finished(Job(here, 2, 2, *saving), here)
    assert "going on from" in output, output
    assert summary["parameters_hash"] == expected["parameters_hash"], (summary["parameters_hash"], expected["parameters_hash"])
    losses = [[epoch["loss"] for epoch in run["epochs"]] for run in (summary, expected)]
    assert losses[0] == losses[1] and len(losses[0]) == EPOCHS, losses
    assert not (here / "saved" / "checkpoint.new").exists()
    (here / "saved" / "checkpoint").write_bytes(copy)
    check_refusals(here, saving)
print("ok")
