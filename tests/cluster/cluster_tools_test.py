"""farhop doctor, ps and clean on three hosts over ssh.

Usage: cluster_tools_test.py FARHOP LAUNCHED_TRAINER [unittest's arguments]
"""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import hosts  # noqa: E402

FARHOP, STAYING = sys.argv[1:3]
cluster = None


def setUpModule():
    global cluster
    cluster = hosts.Cluster()


class Tools(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(cluster.clean(), [], "processes were left")

    def ask(self, *words, expect=0, host_file=None):
        program = cluster.start(FARHOP, words[0], "--hosts", host_file or cluster.host_file(), *cluster.ssh_flags(), *words[1:])
        self.assertEqual(program.wait(60), expect, program.out + program.err)
        return program

    def doctor(self, **more):
        report = json.loads(self.ask("doctor", "--json", "--procs", 2, **more).out)
        checks = [{check["name"]: check for check in machine["checks"]} for machine in report["machines"]]
        return report, checks

    def test_doctor_finds_all_machines_fit_for_a_job(self):
        report, checks = self.doctor()
        self.assertTrue(report["ok"])
        self.assertEqual(len(checks), 3)
        for host, found in zip(cluster.hosts, checks):
            for name in ("reachable", "clock", "version", "network", "open files", "cores", "memory", "peers"):
                self.assertNotEqual(found[name]["state"], "failed", found[name])
            self.assertIn(host.v4, found["network"]["what"])
            self.assertIn("2 ports of 2 machines", found["peers"]["what"])

    def test_doctor_names_the_machine_that_cannot_be_reached_and_those_that_miss_it(self):
        lines = [f"{h.v4} {h.port}" for h in cluster.hosts[:2]] + [f"{cluster.hosts[2].v4} 9"]
        report, checks = self.doctor(expect=1, host_file=cluster.host_file(lines))
        self.assertEqual([machine["ok"] for machine in report["machines"]], [False, False, False])
        self.assertIn("Connection refused", checks[2]["reachable"]["what"])
        self.assertIn("was not there to be reached", checks[0]["peers"]["what"])

    def test_ps_sees_a_job_on_all_hosts_and_clean_ends_it(self):
        job = cluster.start(FARHOP, "run", "--hosts", cluster.host_file(), *cluster.ssh_flags(), "--workdir", cluster.place,
                            "--procs", 2, "--", STAYING, 0, "main", "stay")
        job.await_out("staying", count=6)
        job_id = job.err.split("farhop: job ")[1].split(",")[0]
        seen = json.loads(self.ask("ps", "--json", "--job", job_id).out)
        self.assertEqual(sorted((p["machine"], p["group"]) for p in seen["processes"]),
                         [(m, p) for m in range(3) for p in range(2)])
        self.assertTrue(all(p["state"] in ("ready", "leaving") for p in seen["processes"]), seen)
        self.assertIn("6 of 6 processes", self.ask("ps", "--job", job_id).out)
        self.assertIn("would end process", self.ask("clean", "--dry-run", "--job", job_id).out)
        cleaned = self.ask("clean", "--job", job_id)
        self.assertIn("ended process", cleaned.out)
        self.assertNotEqual(job.wait(30), 0)
        hosts.until(lambda: not cluster.processes(), 5, f"the end of {cluster.processes()}")
        self.assertIn("nothing of job", self.ask("clean", "--job", job_id).out)
        self.ask("ps", "--job", job_id, expect=1)


if __name__ == "__main__":
    hosts.enter()
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
