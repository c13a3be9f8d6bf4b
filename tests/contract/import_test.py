"""farhop import reads the layouts of other systems, written by numpy, torch and import_sources.py.

Usage: import_test.py FARHOP_PROGRAM"""
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import import_sources as sources  # noqa: E402

FARHOP = ""


def content(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data, mode="wb"):
    with open(path, mode) as file:
        file.write(data)


def farhop(*arguments):
    return subprocess.run([FARHOP, *map(str, arguments)], capture_output=True, text=True, timeout=60)


class Import(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="farhop-test-")
        self.root = self.directory.name

    def tearDown(self):
        self.directory.cleanup()

    def path(self, name):
        return os.path.join(self.root, name)

    def imported(self, source, *options):
        result = farhop("import", source, "--out", self.path("out"), "--force", *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refused(self, source, message, *options):
        result = farhop("import", source, "--out", self.path("refused"), *options)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(message, result.stderr)
        self.assertFalse(os.path.exists(self.path("refused")))
        self.assertEqual([name for name in os.listdir(self.root) if name.startswith(".")], [])

    def array(self, *parts):
        return np.load(self.path("out/" + ".".join(parts) + ".npy"))

    def check(self, graph, features=("feat", "feat"), nodes=None, edges=None, weights=None):
        """The output is `graph`; with `nodes` and `edges`, in their order (new -> old ids)."""
        for relation, ends in graph["edges"].items():
            stem = ("edges", ":".join(relation).replace(":", "%3A")) if nodes is not None else ("edges", *relation)
            found = self.array(*stem)
            if nodes is not None:
                found = np.stack([nodes[relation[0]][found[0]], nodes[relation[2]][found[1]]])
            order = slice(None) if edges is None else edges[relation]
            np.testing.assert_array_equal(found, ends[:, order])
            text = ":".join(relation).replace(":", "%3A")
            if features[1]:
                np.testing.assert_array_equal(self.array("edge", text, features[1]), graph["edge_feat"][relation][order])
            if weights:
                np.testing.assert_array_equal(self.array("edge", text, weights), graph["weight"][relation])
        for name, rows in graph["node_feat"].items():
            order = slice(None) if nodes is None else nodes[name]
            np.testing.assert_array_equal(self.array("node", name, features[0]), rows[order])

    def check_partitions(self, graph, nodes=None):
        for name, part in graph["part"].items():
            order = slice(None) if nodes is None else nodes[name]
            np.testing.assert_array_equal(np.load(self.path(f"out/partition_{name}.npy")), part[order])
            self.assertEqual(np.load(self.path(f"out/partition_{name}.npy")).dtype, np.int32)

    def test_reads_ogb_csv(self):
        graph = sources.random_graph(False)
        sources.write_ogb(graph, self.path("ogb"))
        self.imported(self.path("ogb"))
        self.check(graph)
        np.testing.assert_array_equal(self.array("node", "_N", "node_year"), 2000 + np.arange(50))
        np.testing.assert_array_equal(self.array("train", "_N", "labels"), np.arange(20) % 5)
        self.assertTrue(os.path.exists(self.path("out/mapping/nodeidx2paperid.csv.gz")))
        self.assertIn("num_classes: 5", content(self.path("out/metadata.yaml")).decode())

    def test_reads_ogb_npz(self):
        graph = sources.random_graph(False)
        sources.write_ogb(graph, self.path("ogb"), binary=True)
        self.imported(self.path("ogb"))
        self.check(graph)
        np.testing.assert_array_equal(self.array("test", "_N", "labels"), np.arange(25, 30) % 5)
        self.assertEqual(self.array("test", "_N", "labels").dtype, np.int64)

    def test_reads_ogb_of_several_types(self):
        graph = sources.random_graph(True)
        for binary in (False, True):
            root = self.path(f"ogb{binary}")
            sources.write_ogb_hetero(graph, root, binary)
            self.imported(root)
            self.check(graph, features=("feat", None))
            np.testing.assert_array_equal(self.array("validation", "paper", "seeds"), np.arange(20, 30))

    def test_reads_pyg_partitions_and_keeps_their_assignment(self):
        for hetero in (False, True):
            graph = sources.random_graph(hetero)
            root = self.path(f"pyg{hetero}")
            sources.write_pyg(graph, root, hetero)
            self.assertIn("assignment to 2 partitions is kept", self.imported(root))
            self.check(graph, features=("x", "edge_attr"))
            self.check_partitions(graph)

    def test_reads_graphlearn_partitions_and_keeps_their_assignment(self):
        for hetero in (False, True):
            graph = sources.random_graph(hetero)
            root = self.path(f"glt{hetero}")
            sources.write_graphlearn(graph, root, hetero)
            self.imported(root)
            self.check(graph, weights="weight")
            self.check_partitions(graph)

    def test_reads_graphs_that_graphbolt_has_preprocessed(self):
        graph = sources.random_graph(True)
        sources.write_graphbolt_preprocessed(graph, self.path("bolt"))
        self.imported(self.path("bolt"))
        self.check(graph, features=("feat", None), weights="weight")

    def test_reads_dgl_partitions(self):
        for hetero, originals, graphbolt in ((False, False, False), (True, True, False), (True, False, True)):
            graph = sources.random_graph(hetero)
            root = self.path(f"dgl{hetero}{originals}{graphbolt}")
            nodes, edges = sources.write_dgl(graph, root, originals, graphbolt)
            self.imported(root)
            if originals:
                nodes = {name: np.arange(len(ids)) for name, ids in nodes.items()}
                edges = None
            self.check(graph, nodes=nodes, edges=edges)
            self.check_partitions(graph, nodes=nodes)

    def test_reads_numpy_edges_of_any_shape_order_and_dtype(self):
        ends = np.random.default_rng(1).integers(0, 100, (2, 60))
        ends[0, 0] = 100
        for number, array in enumerate((ends.astype(np.uint8), np.asfortranarray(ends.astype(np.int16)), ends.T.copy(),
                                        np.asfortranarray(ends.T.astype(np.uint64)))):
            np.save(self.path(f"{number}.npy"), array)
            self.imported(self.path(f"{number}.npy"))
            np.testing.assert_array_equal(self.array("edges", "_N", "_E", "_N"), ends)

    def test_refuses_what_is_not_what_it_says(self):
        import torch
        graph = sources.random_graph(False)
        sources.write_pyg(graph, self.path("pyg"), False)
        graph_file = self.path("pyg/part_1/graph.pt")
        whole = content(graph_file)
        good = torch.load(graph_file)

        def with_graph(**changes):
            torch.save({**good, **changes}, graph_file)
            return self.path("pyg")

        col = good["col"].clone()
        col[3] = 50
        self.refused(with_graph(col=col), "part_1/graph.pt")
        self.refused(with_graph(edge_id=torch.zeros_like(good["edge_id"])), "second row for id 0")
        self.refused(with_graph(row=good["row"].float()), "not arrays of integers")
        self.refused(with_graph(row=[1, 2, 3]), "graph.pt has no tensor 'row'")
        write(graph_file, whole[:len(whole) // 2])
        self.refused(self.path("pyg"), "graph.pt is no sound zip archive")
        write(graph_file, b"not a pickle at all")
        self.refused(self.path("pyg"), "part_1/graph.pt")
        os.remove(graph_file)
        self.refused(self.path("pyg"), "part_1/graph.pt")

    def test_partition_takes_a_source_directly_and_export_gives_it_back(self):
        graph = sources.random_graph(True)
        sources.write_pyg(graph, self.path("pyg"), True)
        result = farhop("partition", self.path("pyg"), "--out", self.path("store"), "--parts", 3, "--method", "random")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(os.listdir(self.root)), ["pyg", "store"])
        self.assertEqual(farhop("inspect", self.path("store"), "--verify").returncode, 0)
        result = farhop("export", self.path("store"), "--out", self.path("out"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.check(graph, features=("x", "edge_attr"))
        self.assertEqual(set(np.load(self.path("out/partition_paper.npy"))), {0, 1, 2})

    def test_leaves_nothing_when_the_disk_is_full_and_clears_what_a_killed_run_left(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

        graph = sources.random_graph(False)
        sources.write_pyg(graph, self.path("pyg"), False)
        wide = dict(graph, node_feat={"_N": np.zeros((50, 300), np.float32)})
        sources.write_pyg(wide, self.path("wide"), False)
        np.savetxt(self.path("edges.txt"), np.zeros((5000, 2)), fmt="%d")
        for source in ("edges.txt", "wide"):
            with self.subTest(source):
                result = subprocess.run([FARHOP, "import", self.path(source), "--out", self.path("out")], capture_output=True,
                                        text=True, timeout=60, preexec_fn=limit)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn("File too large", result.stderr)
                self.assertFalse([name for name in os.listdir(self.root) if "out" in name])
        os.makedirs(self.path(".out.partial"))
        write(self.path(".out.partial/edges._N._E._N.npy"), b"half")
        write(self.path(".out.partial/other"), b"half")
        self.imported(self.path("pyg"))
        self.check(graph, features=("x", "edge_attr"))
        self.assertFalse(os.path.exists(self.path("out/other")))

    def test_never_runs_what_a_pickle_asks_for(self):
        class Evil:
            def __reduce__(self):
                return (os.system, ("touch " + marker,))

        marker = self.path("ran")
        graph = sources.random_graph(False)
        sources.write_graphlearn(graph, self.path("glt"), False)
        meta = pickle.loads(content(self.path("glt/META")))
        for protocol in range(2, 6):
            with open(self.path("glt/META"), "wb") as out:
                pickle.dump({**meta, "extra": Evil()}, out, protocol)
            self.imported(self.path("glt"))
            self.assertFalse(os.path.exists(marker))

    def test_reads_a_graphbolt_dataset_with_torch_features_and_all_tasks(self):
        import torch
        os.makedirs(self.path("raw"))
        np.savetxt(self.path("raw/likes.csv"), [[0, 1], [2, 0], [3, 1]], fmt="%d", delimiter=",")
        np.save(self.path("raw/follows.npy"), np.array([[0, 1], [1, 3]]))
        torch.save(torch.arange(8, dtype=torch.float16).reshape(4, 2), self.path("raw/x.pt"))
        torch.save(torch.arange(3).to(torch.bfloat16), self.path("raw/w.pt"))
        np.save(self.path("raw/g.npy"), np.arange(3))
        torch.save(torch.tensor([2, 0]), self.path("raw/seeds.pt"))
        np.save(self.path("raw/pairs.npy"), np.array([[0, 1], [3, 0]]))
        with open(self.path("raw/metadata.yaml"), "w") as out:
            out.write("""
dataset_name: small
graph:
  nodes: [{type: item, num: 2}, {type: user, num: 4}, {type: lonely, num: 7}]
  edges:
  - {type: "user:likes:item", format: csv, path: likes.csv}
  - {type: "user:follows:user", format: numpy, path: follows.npy}
  feature_data:
  - {domain: edge, type: "user:likes:item", name: w, format: torch, path: w.pt}
feature_data:
- {domain: node, type: user, name: x, format: torch, path: x.pt}
- {domain: graph, name: g, format: numpy, path: g.npy}
tasks:
- name: nodes
  num_classes: 3
  train_set: [{type: user, data: [{name: seeds, format: torch, path: seeds.pt}]}]
- name: links
  test_set: [{type: "user:likes:item", data: [{name: seeds, format: numpy, path: pairs.npy}]}]
""")
        self.imported(self.path("raw"))
        np.testing.assert_array_equal(self.array("edges", "user", "likes", "item"), [[0, 2, 3], [1, 0, 1]])
        np.testing.assert_array_equal(self.array("node", "user", "x"), np.arange(8).reshape(4, 2))
        self.assertEqual(self.array("node", "user", "x").dtype, np.float16)
        np.testing.assert_array_equal(self.array("edge", "user%3Alikes%3Aitem", "w"), np.arange(3, dtype=np.float32))
        np.testing.assert_array_equal(self.array("nodes", "train", "user", "seeds"), [2, 0])
        text = content(self.path("out/metadata.yaml")).decode()
        for part in ("num_classes: 3", "name: \"links\"", "domain: graph", "num: 7"):
            self.assertIn(part, text)
        write(self.path("raw/likes.csv"), "1,2\n", "a")
        self.refused(self.path("raw"), "likes.csv:4: node id 2 is out of range: type 'item' was said to have 2 nodes")


if __name__ == "__main__":
    FARHOP = sys.argv.pop(1)
    unittest.main()
