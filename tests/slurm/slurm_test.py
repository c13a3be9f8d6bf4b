"""Trains under a real Slurm of two nodes: as the shipped scripts do it, and when things go wrong.

Usage: slurm_test.py FARHOP FARHOP_SAGE [--full] [unittest's arguments]

With --full also on the dependency graph of Debian's packages, which takes minutes to make, and with real time limits.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import slurm_cluster  # noqa: E402
from slurm_cluster import processes, sh, until  # noqa: E402
from small_dataset import write_dataset  # noqa: E402

slurm_cluster.enter()
farhop, sage = (os.path.abspath(word) for word in sys.argv[1:3])
full = "--full" in sys.argv
rest = [word for word in sys.argv[3:] if word != "--full"]
SCRIPTS = HERE.parent.parent / "scripts"
SMALL = ["--batch-size", 8, "--hidden", 16, "--fanouts", "5,5", "--threads", 1]
ENDLESS = ["--epochs", 1_000_000]
NOTICED_SECONDS = 15


def trainers(job):
    return [p for p in processes() if p.command.startswith(sage) and p.environ.get("SLURM_JOB_ID") == job.number]


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = slurm_cluster.SlurmCluster()
        cls.data = cls.cluster.directory / "data"
        cls.data.mkdir()
        os.environ.update(FARHOP=farhop, TMPDIR=str(cls.data))
        write_dataset(cls.data / "raw")

    def setUp(self):
        self.here = self.data / re.sub(r"\W", "-", self.id())
        self.here.mkdir()
        until(lambda: self.cluster.idle_nodes() == 2, 60, lambda: f"no two idle nodes: {sh('sinfo')}{sh('squeue')}{self.cluster.logs()}")

    def tearDown(self):
        sh("scancel", "--user=root", check=False)
        until(lambda: not [p for p in processes() if p.command.startswith((sage, farhop))], 30, lambda: f"left: {sh('ps', 'axf')}")
        shutil.rmtree(self.here)

    def submit(self, script, *words, options=(), env=None):
        return self.cluster.submit("--chdir", self.here, "--output", self.here / "%x-%j.out", *options,
                                   SCRIPTS / "slurm" / script, *words, env=env)

    def store(self):
        """Made once, by the shipped script."""
        path = self.data / "store"
        if not path.exists():
            job = self.submit("partition.sbatch", self.data / "raw", path, 2)
            job.wait_for("COMPLETED")
        return path

    def train(self, *words, options=(), small=True):
        return self.submit("train.sbatch", self.store(), sage, *(SMALL if small else []), *words, options=options)

    def test_trains_with_the_shipped_scripts(self):
        summary = self.here / "summary.json"
        job = self.train("--epochs", 6, "--summary", summary)
        info = job.wait_for("COMPLETED")
        self.assertEqual(info["ExitCode"], "0:0")
        result = json.loads(summary.read_text())
        self.assertEqual(len(result["epochs"]), 6)
        self.assertGreater(result["test_accuracy"], 0.7)
        self.assertEqual(len(result["peak_rss_bytes"]), 4, "two nodes of two processes")
        self.assertGreater(result["remote_edge_share"], 0)
        again = self.submit("partition.sbatch", self.data / "raw", self.store(), 2)
        again.wait_for("COMPLETED")

    @unittest.skipUnless(full, "takes longer")
    def test_trains_every_seed_of_an_array_wherever_its_tasks_are(self):
        # Cyclic: neighbouring ranks are on different nodes.
        job = self.submit("array.sbatch", self.store(), sage, *SMALL, "--epochs", 2, env={
            "FARHOP_SLURM_SCRIPTS": str(SCRIPTS / "slurm"), "SLURM_DISTRIBUTION": "cyclic"}, options=["--array=3-4"])
        done = until(lambda: (lambda found: found if len(found) == 2 else None)(list(self.here.glob("checkpoints/*/checkpoint"))),
                     60, lambda: f"no two checkpoints: {sh('squeue')}{[p.read_text() for p in self.here.glob('*.out')]}")
        self.assertEqual({path.parent.name for path in done}, {f"{job.number}-3", f"{job.number}-4"})
        until(lambda: job.number not in sh("squeue", "-h", "-o", "%F"), 60, "end of the array")

    def test_leaves_nothing_when_cancelled_in_the_middle_of_an_epoch(self):
        job = self.train(*ENDLESS, "--checkpoint", self.here / "saved")
        job.wait_for_output("epoch  1")
        self.assertEqual(len(trainers(job)), 4)
        sh("scancel", job.number)
        info = job.wait_for("CANCELLED", seconds=NOTICED_SECONDS)
        until(lambda: not trainers(job), NOTICED_SECONDS, "end of the trainers")
        self.assertEqual(info["Restarts"], "0", "its trainers stop when asked to, but it was not to go on")

    def test_refuses_nodes_with_unequal_numbers_of_processes(self):
        job = self.train("--epochs", 1, options=["--ntasks=3", "--ntasks-per-node=2"])
        job.wait_for("FAILED")
        self.assertIn("every machine must run the same number of processes", job.output())

    def test_finishes_when_slurmd_alone_is_killed(self):
        job = self.train("--epochs", 12)
        job.wait_for_output("epoch  1")
        self.cluster.kill_node_daemon("n1")
        try:
            job.wait_for_output("test accuracy")
        finally:
            self.cluster.start_node("n1")
        job.wait_for("COMPLETED")

    def test_fails_soon_when_slurmd_and_slurmstepd_are_killed(self):
        job = self.train(*ENDLESS)
        job.wait_for_output("epoch  1")
        self.cluster.kill_node_daemon("n1")
        self.cluster.kill_steps("n1", job)
        start = time.monotonic()
        try:
            until(lambda: not trainers(job), NOTICED_SECONDS, lambda: f"trainers are left:\n{job.output()}\n{sh('ps', 'axf')}")
            self.assertRegex(job.output(), r"lost machine 1 process \d: slurmstepd")
        finally:
            self.cluster.start_node("n1")
        print(f"noticed within {time.monotonic() - start:.1f} s")

    def launch(self, *words, command=()):
        """farhop run inside sbatch."""
        script = self.here / "launch.sh"
        script.write_text("#!/bin/bash\nexec \"$@\"\n")
        return self.cluster.submit("--chdir", self.here, "--output", self.here / "%x-%j.out", "--nodes=2", "--ntasks-per-node=2",
                                   script, farhop, "run", "--graph", self.store(), *command, "--", sage, *SMALL, *words)

    def test_farhop_run_starts_an_agent_on_every_node(self):
        summary = self.here / "summary.json"
        job = self.launch("--epochs", 4, "--summary", summary)
        job.wait_for("COMPLETED")
        self.assertIn("2 machines x 2 processes, master n0:", job.output())
        self.assertEqual(len(json.loads(summary.read_text())["peak_rss_bytes"]), 4)
        smaller = self.launch("--epochs", 1, command=["--machines", 3])
        smaller.wait_for("FAILED")
        self.assertIn("has 2 nodes, but --machines is 3", smaller.output())

    def test_farhop_run_stops_its_trainers_when_asked_to(self):
        job = self.launch(*ENDLESS, "--checkpoint", self.here / "saved")
        job.wait_for_output("epoch  1")
        sh("scancel", "--batch", "--signal=USR1", job.number)
        info = job.wait_for("FAILED", seconds=NOTICED_SECONDS)
        self.assertEqual(info["ExitCode"], "75:0", job.output())
        self.assertIn("has stopped, as it was asked to", job.output())

    def test_farhop_run_lets_its_trainers_save_when_its_steps_are_told_to_end(self):
        job = self.launch(*ENDLESS, "--checkpoint", self.here / "saved", command=["--grace", 20])
        job.wait_for_output("epoch  1")
        sh("scancel", "--signal=TERM", job.number)  # the agents, and not the launcher: as of a preemption
        info = job.wait_for("FAILED", seconds=NOTICED_SECONDS)
        self.assertEqual(info["ExitCode"], "75:0", job.output())
        self.assertRegex(job.output(), r"machine [01] \(n[01]\) is taken away \(its agent received SIGTERM\)")
        self.assertTrue(list((self.here / "saved").rglob("checkpoint")), sh("find", self.here))

    def test_farhop_run_fails_soon_when_slurmd_and_slurmstepd_are_killed_and_leaves_nothing_when_killed_itself(self):
        job = self.launch(*ENDLESS)
        job.wait_for_output("epoch  1")
        self.cluster.kill_node_daemon("n1")
        self.cluster.kill_steps("n1", job)
        try:
            job.wait_for("FAILED", "COMPLETING", seconds=NOTICED_SECONDS)  # n1 cannot say that it has completed
            self.assertRegex(job.output(), r"machine 1 \(n1\) is lost|lost machine 1")
            until(lambda: not trainers(job), NOTICED_SECONDS, lambda: f"trainers are left: {sh('ps', 'axf')}")
        finally:
            self.cluster.start_node("n1")
        until(lambda: self.cluster.idle_nodes() == 2, 30, lambda: sh("sinfo"))
        job = self.launch(*ENDLESS)
        job.wait_for_output("epoch  1")
        for process in processes():
            if process.command.startswith(f"{farhop} run"):
                os.kill(process.pid, signal.SIGKILL)
        until(lambda: not trainers(job), NOTICED_SECONDS, lambda: f"trainers are left: {sh('ps', 'axf')}")

    def resumed(self, job, summary):
        job.wait_for("COMPLETED", seconds=120)
        output = job.output()
        self.assertIn("going on from", output)
        self.assertIn("goes back into the queue", output)
        self.assertEqual(job.info()["Restarts"], "1", output)
        return json.loads(summary.read_text())

    def test_goes_on_after_a_requeue_where_it_stopped(self):
        reference, summary = self.here / "reference.json", self.here / "summary.json"
        words = ["--epochs", 15, "--dropout", 0.2]
        self.train(*words, "--summary", reference).wait_for("COMPLETED")
        job = self.train(*words, "--checkpoint", self.here / "saved", "--checkpoint-every", 1_000, "--summary", summary)
        job.wait_for_output("epoch  2")
        sh("scancel", "--batch", "--signal=USR1", job.number)  # as Slurm does before the time limit
        job.wait_for_output("stopped in epoch", seconds=NOTICED_SECONDS)
        result = self.resumed(job, summary)
        self.assertEqual(result["parameters_hash"], json.loads(reference.read_text())["parameters_hash"])

    @unittest.skipUnless(full, "takes minutes")
    def test_trains_the_debian_graph_beyond_a_time_limit(self):
        raw, store, summary = self.data / "debian", self.data / "debian-store", self.here / "summary.json"
        sh(SCRIPTS / "make_debian_dataset", "--out", raw, timeout=600)
        self.submit("partition.sbatch", raw, store, 2).wait_for("COMPLETED", seconds=600)
        # The signal comes up to a minute before its time, so some time within the first minute.
        job = self.submit("train.sbatch", store, sage, "--epochs", 30, "--checkpoint", self.here / "saved", "--summary", summary,
                          options=["--time=2", "--signal=B:USR1@90"])
        until(lambda: "goes back into the queue" in job.output(), 180, lambda: job.output())
        job.wait_for("COMPLETED", seconds=400)
        result = json.loads(summary.read_text())
        self.assertEqual(len(result["epochs"]), 30)
        self.assertGreater(result["test_accuracy"], result["mlp_test_accuracy"] + 0.1)


if __name__ == "__main__":
    signal.alarm(1_500 if full else 300)  # of PID 1: everything ends with it
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
