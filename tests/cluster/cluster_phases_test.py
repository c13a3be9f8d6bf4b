"""Partition, dispatch, check and run on three hosts that share no store.

Usage: cluster_phases_test.py FARHOP [FARHOP_SAGE [unittest's arguments]]
"""
import pathlib
import shutil
import sys
import unittest

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import hosts  # noqa: E402

FARHOP = sys.argv[1]
SAGE = sys.argv[2] if len(sys.argv) > 2 and not sys.argv[2].startswith("-") else None
cluster = None


def write_dataset(directory, nodes=600, classes=3):
    random = numpy.random.default_rng(5)
    label = random.integers(0, classes, nodes)
    members = [numpy.flatnonzero(label == c) for c in range(classes)]
    source = numpy.repeat(numpy.arange(nodes), 6)
    destination = numpy.array([random.choice(members[label[s]]) for s in source])
    x = random.normal(0, 1, (nodes, 8)).astype(numpy.float32)
    x[numpy.arange(nodes), label] += 1.0
    directory.mkdir()
    order = random.permutation(nodes)
    splits = {"train_set": order[:300], "validation_set": order[300:450], "test_set": order[450:]}
    arrays = {"edges": numpy.stack([source, destination]), "x": x, "label": label.astype(numpy.int64), **splits}
    for name, values in arrays.items():
        numpy.save(directory / f"{name}.npy", values)
    tasks = "".join(f"    {name}:\n      - type: node\n        data:\n          - {{name: seeds, format: numpy, path: {name}.npy}}\n"
                    for name in splits)
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


def setUpModule():
    global cluster
    cluster = hosts.Cluster()
    write_dataset(cluster.directory / "raw")


class Phases(unittest.TestCase):
    def setUp(self):
        self.store = cluster.place / "a store"  # one path, four directories
        for place in [cluster.place, *(h.own for h in cluster.hosts)]:
            shutil.rmtree(place / "a store", ignore_errors=True)
            (place / "a store.made-from.json").unlink(missing_ok=True)

    def tearDown(self):
        self.assertEqual(cluster.clean(), [], "processes were left")

    def farhop(self, *words, expect=0, seconds=60):
        program = cluster.start(FARHOP, *words)
        self.assertEqual(program.wait(seconds), expect, program.out + program.err)
        return program

    def over_ssh(self):
        return ["--hosts", cluster.host_file(), *cluster.ssh_flags()]

    def partition(self, parts=4):
        self.farhop("partition", cluster.directory / "raw", "--out", self.store, "--parts", parts, "--add-reverse")

    def dispatch(self, **more):
        return self.farhop("dispatch", self.store, *self.over_ssh(), **more)

    def there(self, host):
        own = host.own / "a store"
        return {p.relative_to(own).parts[0] for p in own.rglob("*") if p.is_file()} if own.exists() else set()

    def test_all_of_them_in_one_command_and_none_twice(self):
        run = ["run", "--partition-first", cluster.directory / "raw" / "metadata.yaml", "--partition-option", "add-reverse",
               "--dispatch", "--check", "--graph", self.store, "--workdir", cluster.place, *self.over_ssh(), "--procs", 2, "--"]
        first = self.farhop(*run, "sh", "-c", "ls \"$FARHOP_GRAPH\"")
        for m in range(3):
            lines = [line for line in first.out.splitlines() if line.startswith(f"[m{m} p0]")]
            self.assertEqual(lines, [f"[m{m} p0] {name}" for name in ("global", "graph.json", f"part-0000{m}")])
        self.assertEqual(first.err.count("files, "), 3, first.err)
        again = self.farhop(*run, "true")
        self.assertIn("was made from", again.err)
        self.assertEqual(again.err.count("has its partitions already"), 3, again.err)
        self.assertNotIn("files, ", again.err)
        (cluster.directory / "raw" / "note.txt").write_text("changed")
        changed = self.farhop(*run, "true")
        self.assertNotIn("was made from", changed.err)
        (cluster.directory / "raw" / "note.txt").unlink()

    def test_a_machine_gets_its_partitions_only(self):
        self.partition(4)
        self.dispatch()
        self.assertEqual(self.there(cluster.hosts[0]), {"graph.json", "global", "part-00000", "part-00001"})
        self.assertEqual(self.there(cluster.hosts[1]), {"graph.json", "global", "part-00002"})
        self.assertEqual(self.there(cluster.hosts[2]), {"graph.json", "global", "part-00003"})
        self.farhop("check", self.store, *self.over_ssh())
        self.farhop("check", self.store)

    def test_goes_on_where_it_was(self):
        self.partition()
        self.dispatch()
        own = cluster.hosts[1].own / "a store"
        files = sorted(p for p in own.rglob("*.npy"))
        stat = files[0].stat()
        files[0].write_bytes(bytes(stat.st_size))  # of the right size and time
        hosts.os.utime(files[0], ns=(stat.st_atime_ns, stat.st_mtime_ns))
        files[1].unlink()
        check = self.farhop("check", self.store, *self.over_ssh(), expect=1)
        self.assertIn("machine 1 (h1): 2 files are missing or differ", check.err)
        self.assertIn("machine 0 (h0): has its partitions", check.err)
        again = self.dispatch()
        self.assertIn("machine 1 (h1): 2 files, ", again.err)
        self.assertEqual(again.err.count("already"), 2)
        self.farhop("check", self.store, *self.over_ssh())

    def test_replaces_another_store(self):
        self.partition(3)
        self.dispatch()
        self.farhop("partition", cluster.directory / "raw", "--out", self.store, "--parts", 3, "--method", "random", "--force")
        self.farhop("check", self.store, *self.over_ssh(), expect=1)
        self.dispatch()
        self.farhop("check", self.store, *self.over_ssh())

    def test_a_full_disk_is_named(self):
        self.partition(3)
        own = cluster.hosts[2].own / "a store"
        own.mkdir()
        cluster.hosts[2].inside("mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", self.store)
        try:
            full = self.dispatch(expect=1)
            self.assertRegex(full.err, r"machine 2 \(h2\): .* free, and .* are missing")
            self.assertIn("machine 1 (h1): has its partitions", full.err)
            self.assertIn("1 of 3 machines do not have", full.err)
            # Room when it was asked, and none any more when the files come.
            cluster.hosts[2].inside("mount", "-o", "remount,size=1m", self.store)
            wrapper = cluster.hosts[2].own / "farhop"
            wrapper.write_text(f"#!/bin/sh\n{FARHOP} \"$@\"; code=$?\nmount -o remount,size=16k '{self.store}'\nexit $code\n")
            wrapper.chmod(0o755)
            for host in cluster.hosts[:2]:
                (host.own / "farhop").symlink_to(FARHOP)
            late = self.farhop("dispatch", self.store, *self.over_ssh(), "--farhop", cluster.place / "farhop", expect=1)
            self.assertIn("No space left on device", late.err)
            self.assertNotIn("graph.json", cluster.hosts[2].inside("ls", self.store))
        finally:
            cluster.hosts[2].inside("umount", "--lazy", self.store)
            for host in cluster.hosts:
                (host.own / "farhop").unlink(missing_ok=True)
        self.dispatch()

    def test_refuses_too_few_partitions(self):
        self.partition(2)
        few = self.dispatch(expect=2)
        self.assertIn("--parts 3", few.err)

    @unittest.skipIf(SAGE is None, "built without libtorch")
    def test_trains(self):
        self.partition(3)
        self.dispatch()
        job = self.farhop("run", "--graph", self.store, *self.over_ssh(), "--workdir", cluster.place, "--procs", 2,
                          "--env", "OMP_NUM_THREADS=1", "--", SAGE, "--epochs", 2, "--fanouts", "5,5", "--batch-size", 64, seconds=120)
        self.assertIn("test accuracy", job.out)


if __name__ == "__main__":
    hosts.enter()
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
