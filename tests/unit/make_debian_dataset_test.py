"""make_debian_dataset on a package index small enough to check by hand."""
import os
import stat
import subprocess
import sys
import tempfile
import unittest

import numpy as np

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "make_debian_dataset")

INDEX = """Package: zeta
Version: 2.0
Depends: alpha (>= 1.0), beta:any | gamma [amd64], absent
Pre-Depends: alpha
Description: Quick viewer for zeta star maps
 Shows stars and zeta planets.
Section: contrib/science

Package: alpha
Version: 1.0
Recommends: zeta, zeta (>> 3),
 beta (= 1.0~rc1) | also-absent
Description-en: Library of stars
Section: libs

Package: beta
Version: 1
Suggests: alpha | beta
Description: Perl module
Section: perl

Package: alpha
Version: 0.9
Depends: gamma
Description: An older version that does not count
Section: oldlibs

Package: gamma
Version: 7
Section: non-free/libs
"""


class MakeDebianDataset(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.TemporaryDirectory(prefix="farhop-test-")
        self.addCleanup(self.root.cleanup)
        self.out = os.path.join(self.root.name, "debian")
        self.index = os.path.join(self.root.name, "index.txt")
        self.write_index(INDEX)

    def write_index(self, text):
        with open(self.index, "w", encoding="utf-8") as file:
            file.write(text)

    def run_program(self, expected=0):
        done = subprocess.run([sys.executable, PROGRAM, "--out", self.out, "--input", self.index],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, expected, done.stderr)
        return done.stdout if expected == 0 else done.stderr

    def load(self, name):
        return np.load(os.path.join(self.out, name))

    def lines(self, name):
        with open(os.path.join(self.out, name), encoding="utf-8") as file:
            return file.read().splitlines()

    def test_takes_names_edges_and_labels_from_the_first_stanza_of_each_package(self):
        self.assertIn("4 packages, 7 edges, 3 labels", self.run_program())
        self.assertEqual(self.lines("names.txt"), ["alpha", "beta", "gamma", "zeta"])
        self.assertEqual(self.lines("labels.txt"), ["libs", "perl", "science"])
        self.assertEqual(self.load("label.npy").tolist(), [0, 1, 0, 2])
        edges = self.load("edges.npy")
        self.assertEqual((edges.dtype, edges.shape), (np.int64, (2, 7)))
        self.assertEqual(edges.T.tolist(), [[0, 1], [0, 3], [1, 0], [1, 1], [3, 0], [3, 1], [3, 2]])

    def test_features_are_unit_vectors_of_words_without_the_name(self):
        self.run_program()
        x = self.load("x.npy")
        self.assertEqual((x.dtype, x.shape), (np.float32, (4, 512)))
        np.testing.assert_allclose(np.linalg.norm(x, axis=1), [1, 1, 0, 1], rtol=1e-6)  # gamma has no description
        # "zeta" is dropped from its own description: without the word, the rest stays the same.
        self.write_index(INDEX.replace("for zeta star", "for star").replace("and zeta planets", "and planets"))
        self.run_program()
        np.testing.assert_array_equal(self.load("x.npy"), x)
        self.assertGreater(abs(float(x[0] @ x[3])), 0.01, "they share the word 'stars'")

    def test_splits_cover_every_package_once_and_depend_on_the_name_only(self):
        self.write_index("".join(f"Package: p{i:03d}\nSection: misc\n\n" for i in range(400)))
        self.run_program()
        splits = {name: self.load(f"{name}_seeds.npy") for name in ("train", "validation", "test")}
        self.assertEqual(sorted(np.concatenate(list(splits.values())).tolist()), list(range(400)))
        self.assertTrue(160 < len(splits["train"]) < 240, len(splits["train"]))
        in_train = {self.lines("names.txt")[i] for i in splits["train"]}
        self.write_index("".join(f"Package: p{i:03d}\nSection: misc\n\n" for i in range(200, 400)))
        self.run_program()
        again = {self.lines("names.txt")[i] for i in self.load("train_seeds.npy")}
        self.assertEqual(again, {name for name in in_train if name >= "p200"})
        np.testing.assert_array_equal(self.load("train_labels.npy"), self.load("label.npy")[self.load("train_seeds.npy")])

    def test_a_second_run_changes_nothing_and_a_new_index_is_taken(self):
        self.run_program()
        before = os.stat(os.path.join(self.out, "x.npy"))
        self.assertIn("up to date", self.run_program())
        after = os.stat(os.path.join(self.out, "x.npy"))
        self.assertEqual((before.st_ino, before.st_mtime_ns), (after.st_ino, after.st_mtime_ns))
        self.write_index(INDEX + "\nPackage: omega\nSection: x11\n")
        self.assertIn("5 packages", self.run_program())
        self.assertEqual(sorted(os.listdir(self.root.name)), ["debian", "index.txt"])

    def test_refuses_an_empty_index_and_leaves_nothing(self):
        self.write_index("\n\n")
        self.assertIn("run apt-get update", self.run_program(expected=1))
        self.assertEqual(os.listdir(self.root.name), ["index.txt"])

    def test_never_replaces_a_directory_that_it_did_not_write(self):
        os.mkdir(self.out)
        with open(os.path.join(self.out, "notes.txt"), "w", encoding="utf-8") as file:
            file.write("mine")
        self.assertIn("was not written by this program", self.run_program(expected=1))
        self.assertEqual(os.listdir(self.out), ["notes.txt"])

    def test_names_an_input_that_cannot_be_read(self):
        os.remove(self.index)
        self.assertIn("index.txt", self.run_program(expected=1))

    def test_is_executable(self):
        self.assertTrue(os.stat(PROGRAM).st_mode & stat.S_IXUSR)


if __name__ == "__main__":
    unittest.main()
