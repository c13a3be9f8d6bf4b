"""farhop run on three hosts over ssh: how jobs start and end, and that nothing keeps running.

Usage: cluster_run_test.py FARHOP LAUNCHER_TEST_TRAINER LAUNCHED_TRAINER [unittest's arguments]
"""
import json
import os
import pathlib
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import hosts  # noqa: E402

FARHOP, DESCRIBE, STAYING = sys.argv[1:4]
# Notices of a cut: heartbeats' 9 s, and a loaded machine.
CUT_SECONDS = 15
cluster = None


def setUpModule():
    global cluster
    cluster = hosts.Cluster()


class ClusterTest(unittest.TestCase):
    def run_job(self, options, trainer, host_file=None):
        return cluster.start(FARHOP, "run", "--hosts", host_file or cluster.host_file(), *cluster.ssh_flags(), "--workdir",
                             cluster.place, *options, "--", *trainer)

    def stay(self, procs=2, options=()):
        """A job whose processes have met and stay until they lose one."""
        job = self.run_job(["--procs", procs, *options], [STAYING, 0, "main", "stay"])
        job.await_out("staying", count=3 * procs)
        return job

    def assert_gone(self, seconds=2):
        hosts.until(lambda: not cluster.processes(), seconds, f"the end of {cluster.processes()}")

    def tearDown(self):
        left = cluster.clean()
        self.assertEqual(left, [], "processes were left")


class Start(ClusterTest):
    def test_gives_every_process_its_place_and_its_words_untouched(self):
        words = ["describe", "", " a  b ", "it's \"quoted\"", "$HOME `id` \\ * ?", "new\nline", "--", "--help", "ä"]
        job = self.run_job(["--procs", 2, "--env", "ADDED=a 'b' $c"], [DESCRIBE, *words])
        self.assertEqual(job.wait(), 0, job.err)
        found = {}
        for line in job.out.splitlines():
            label, _, text = line.partition("] ")
            found[label[1:]] = json.loads(text)
        self.assertEqual(sorted(found), [f"m{m} p{p}" for m in range(3) for p in range(2)])
        for label, d in found.items():
            self.assertEqual([bytes.fromhex(w).decode() for w in d["argv"]], [DESCRIBE, *words])
            self.assertEqual(d["env"]["ADDED"], "a 'b' $c")
            self.assertEqual(d["env"]["WORLD_SIZE"], "6")
            self.assertEqual(d["env"]["MASTER_ADDR"], cluster.hosts[0].v4)
            self.assertEqual(d["workdir"], str(cluster.place))
            if label.startswith("m0"):
                self.assertEqual(d["listenerPort"], d["masterPort"] + d["proc"])
            else:
                self.assertEqual(d["env"]["FARHOP_MASTER_FD"], None)
        self.assertEqual(len({d["token"] for d in found.values()}), 1)
        self.assertNotIn(found["m0 p0"]["token"], job.err)
        self.assert_gone()

    def test_groups_meet_across_hosts(self):
        job = self.run_job(["--procs", 2], [STAYING, -1, "none", "0"])
        self.assertEqual(job.wait(60), 0, job.err)
        self.assertEqual(job.out.count("ended: nobody"), 6, job.out)
        self.assert_gone()

    def test_works_where_only_ipv6_is(self):
        lines = [f"{h.v6} {h.port}" for h in cluster.hosts]
        for host in cluster.hosts:
            host.addresses("del")
        try:
            job = self.run_job(["--procs", 2], [STAYING, -1, "none", "0"], cluster.host_file(lines))
            self.assertEqual(job.wait(60), 0, job.err)
            self.assertEqual(job.out.count("ended: nobody"), 6, job.out)
            self.assertIn(f"master [{cluster.hosts[0].v6}]:", job.err)
        finally:
            for host in cluster.hosts:
                host.addresses("add")

    def test_takes_the_interface_it_is_told(self):
        job = self.run_job(["--iface", "eth0"], [DESCRIBE])
        self.assertEqual(job.wait(), 0, job.err)
        wrong = self.run_job(["--iface", "eth7"], [DESCRIBE])
        self.assertEqual(wrong.wait(), 127, wrong.err)
        self.assertIn("--iface eth7", wrong.err)
        self.assertIn("eth0 (10.77.0.1)", wrong.err)

    def test_names_what_it_cannot_find_there(self):
        job = self.run_job([], ["./no-such-trainer"])
        self.assertEqual(job.wait(), 127, job.err)
        self.assertIn("no-such-trainer", job.err)
        self.assertRegex(job.err, r"machine \d \(h\d\): trainer")
        (cluster.hosts[1].own / "graph").mkdir()
        job = self.run_job(["--graph", cluster.place / "graph"], [DESCRIBE])
        self.assertEqual(job.wait(), 127, job.err)
        self.assertIn("no graph.json", job.err)

    def test_refuses_a_port_in_use(self):
        with open(os.devnull) as null:
            taken = hosts.subprocess.Popen(
                ["nsenter", "--target", str(cluster.hosts[0].pid), "--net", sys.executable, "-c",
                 "import socket,time; s=socket.create_server(('', 29500)); print(flush=True); time.sleep(60)"],
                stdin=null, stdout=hosts.subprocess.PIPE)
        try:
            taken.stdout.readline()
            job = self.run_job(["--master-port", 29499, "--procs", 2], [DESCRIBE])
            self.assertEqual(job.wait(), 1, job.err)
            self.assertIn("machine 0 (h0)", job.err)
            self.assertIn("29500", job.err)
            self.assertEqual(job.out, "")
        finally:
            taken.kill()
            taken.wait()
            taken.stdout.close()

    def test_refuses_a_wrong_host_key(self):
        cluster.known.write_text(cluster.known.read_text().replace(
            (cluster.directory / "h1.key.pub").read_text().split()[1],
            (cluster.directory / "h2.key.pub").read_text().split()[1]))
        try:
            job = self.run_job([], [DESCRIBE])
            self.assertEqual(job.wait(), 1, job.err)
            self.assertIn("machine 1 (h1)", job.err)
            self.assertIn("ssh-keygen -R", job.err)
            cluster.known.write_text("")
            unknown = self.run_job([], [DESCRIBE])
            self.assertEqual(unknown.wait(), 1, unknown.err)
            self.assertIn("StrictHostKeyChecking=accept-new", unknown.err)
            told = self.run_job(["--ssh-option", "StrictHostKeyChecking=no"], [DESCRIBE])
            self.assertEqual(told.wait(), 0, told.err)
        finally:
            cluster.trust()

    def test_names_a_host_that_does_not_resolve(self):
        job = self.run_job([], [DESCRIBE], cluster.host_file(["h0 2200", "nowhere.invalid"]))
        self.assertEqual(job.wait(), 1, job.err)
        self.assertIn("machine 1 (nowhere.invalid)", job.err)
        self.assertIn("resolve", job.err)

    def test_refuses_a_machine_with_another_version(self):
        other = cluster.hosts[2].own / "farhop"
        hello = b"\x09\0\0\0" + b"0.0.1-old" + b"\x02\0\0\0h2" + b"\x01\0\0\0"
        payload = b"\x01\0\0\0" + hello
        frame = len(payload).to_bytes(4, "little") + b"\x01" + payload
        other.write_text("#!/usr/bin/python3\nimport sys, time\n"
                         f"sys.stdout.buffer.write({b'Welcome!' + bytes([10]) + b'FARHOP-AGENT' + bytes([10]) + frame!r})\n"
                         "sys.stdout.flush()\nsys.stdin.buffer.read()\n")
        other.chmod(0o755)
        for host in cluster.hosts[:2]:
            (host.own / "farhop").symlink_to(FARHOP)
        job = self.run_job(["--farhop", cluster.place / "farhop"], [DESCRIBE])
        self.assertEqual(job.wait(), 1, job.err)
        self.assertIn("machine 2 (h2): farhop 0.0.1-old", job.err)
        missing = self.run_job(["--farhop", cluster.place / "nothing"], [DESCRIBE])
        self.assertEqual(missing.wait(), 127, missing.err)
        self.assertIn("--farhop", missing.err)

    def test_can_be_interrupted_while_a_host_does_not_answer(self):
        cluster.hosts[2].link("down")
        try:
            job = self.run_job([], [DESCRIBE])
            time.sleep(1)
            job.process.send_signal(signal.SIGINT)
            self.assertEqual(job.wait(5), 130, job.err)
        finally:
            cluster.hosts[2].link("up")


class End(ClusterTest):
    def test_is_the_failing_processs_exit_code(self):
        job = self.run_job(["--procs", 2], ["sh", "-c", "[ $RANK = 3 ] || exec sleep 60; for i in $(seq 25); do echo line $i; done; exit 42"])
        self.assertEqual(job.wait(), 42, job.err)
        self.assertIn("machine 1 process 1 (h1) failed: exit code 42", job.err)
        self.assertIn("its last 20 lines:\n    line 6\n", job.err)
        self.assertIn("/m1-p1.log", job.err)
        self.assert_gone()

    def test_takes_daemons_along(self):
        job = self.run_job([], ["sh", "-c", "(setsid sleep 300 &) ; [ $RANK = 1 ] && { sleep 0.5; exit 3; }; exec sleep 60"])
        self.assertEqual(job.wait(), 3, job.err)
        self.assert_gone()

    def test_forwards_signals(self):
        job = self.run_job(["--grace", 20], ["sh", "-c", "trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.05; done"])
        job.await_out("ready", count=3)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(10), 143, job.err)
        self.assertEqual(job.out.count("got TERM"), 3)
        stubborn = self.run_job(["--grace", 60], [DESCRIBE, "stubborn"])
        stubborn.await_out("stubborn", count=3)
        stubborn.process.send_signal(signal.SIGINT)
        hosts.until(lambda: "again to kill" in stubborn.err, 5)
        stubborn.process.send_signal(signal.SIGINT)
        self.assertEqual(stubborn.wait(5), 130, stubborn.err)
        self.assert_gone()

    def test_leaves_nothing_when_the_launcher_is_killed(self):
        job = self.run_job(["--procs", 2], ["sh", "-c", "trap '' TERM HUP INT; echo ready; setsid sleep 300 & sleep 300; exit 0"])
        job.await_out("ready", count=6)
        job.process.send_signal(signal.SIGKILL)
        job.wait()
        self.assert_gone(5)

    def test_comes_when_a_connections_sshd_is_killed(self):
        job = self.stay()
        begin = time.monotonic()
        for pid in cluster.hosts[1].sshd_sessions():
            cluster.hosts[1].inside("kill", "-9", pid, check=False)
        self.assertEqual(job.wait(CUT_SECONDS), 255, job.err)
        self.assertLess(time.monotonic() - begin, 8)
        self.assertIn("machine 1 (h1) is lost: the ssh connection broke", job.err)
        self.assertIn("machine 1 process 0 (h1) failed: lost with its machine", job.err)
        self.assertIn("ended: machine 1 process 0", job.out)
        self.assert_gone(5)

    def agent_on(self, host):
        """Its number here, outside the host's namespaces."""
        def is_agent(pid):
            process = pathlib.Path(f"/proc/{pid}")
            return (process / "cmdline").read_bytes().endswith(b"\0agent\0") and (process / "comm").read_text() != "farhop-watcher\n"
        [agent] = [pid for pid in host.processes() if is_agent(pid)]
        return agent

    def test_gives_all_the_grace_when_a_machine_is_taken_away(self):
        job = self.run_job(["--grace", 20, "--max-restarts", 1],
                           ["sh", "-c", "trap 'sleep 0.3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"])
        job.await_out("ready", count=3)
        os.kill(self.agent_on(cluster.hosts[1]), signal.SIGTERM)
        self.assertEqual(job.wait(10), 143, job.err)
        self.assertEqual(job.out.count("saved"), 3, job.out)
        self.assertIn("machine 1 (h1) is taken away (its agent received SIGTERM): ending the job", job.err)
        self.assert_gone()

    def test_takes_along_what_trainers_started_when_an_agent_is_killed(self):
        job = self.run_job([], ["sh", "-c", "sleep 300 & setsid sleep 300 & echo ready; exec sleep 300"])
        job.await_out("ready", count=3)
        os.kill(self.agent_on(cluster.hosts[1]), signal.SIGKILL)
        hosts.until(lambda: not cluster.hosts[1].processes(), 5, "the end of what ran there")
        self.assertEqual(job.wait(15), 255, job.err)
        self.assertIn("machine 1 (h1) is lost", job.err)
        self.assert_gone()

    def test_comes_when_a_link_is_cut(self):
        job = self.stay()
        begin = time.monotonic()
        cluster.hosts[2].link("down")
        try:
            # On the cut host the agent notices by itself, and so does the launcher on its side.
            hosts.until(lambda: not cluster.hosts[2].processes(), CUT_SECONDS, "the end on the cut host")
            alone = time.monotonic() - begin
            self.assertNotEqual(job.wait(CUT_SECONDS), 0)
            whole = time.monotonic() - begin
        finally:
            cluster.hosts[2].link("up")
        print(f"cut: the host's processes ended after {alone:.1f} s, the job after {whole:.1f} s")
        self.assertLess(whole, CUT_SECONDS + 2)
        self.assertIn("machine 2", job.err)
        for m in (0, 1):
            self.assertRegex(job.out, rf"\[m{m} p0\] ended: machine 2 process 0")
        self.assert_gone(5)

    def test_comes_again_after_a_failure_as_often_as_told(self):
        job = self.run_job(["--max-restarts", 2, "--log-dir", cluster.directory / "logs"],
                           ["sh", "-c", "echo attempt $FARHOP_RESTART_COUNT; [ $RANK = 1 ] || exec sleep 5; "
                            "[ $FARHOP_RESTART_COUNT = 2 ] || exit 9; exit 7"])
        self.assertEqual(job.wait(60), 7, job.err)
        self.assertEqual(job.err.count("starting the job again"), 2, job.err)
        for attempt, name in enumerate(["m1-p0.log", "m1-p0-attempt1.log", "m1-p0-attempt2.log"]):
            self.assertEqual((cluster.directory / "logs" / name).read_text(), f"attempt {attempt}\n")


if __name__ == "__main__":
    hosts.enter()
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
