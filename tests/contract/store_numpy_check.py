"""numpy opens every file of a store, and what it finds agrees with graph.json. Usage: store_numpy_check.py STORE"""
import json
import os
import sys

import numpy as np

store = sys.argv[1]
with open(os.path.join(store, "graph.json"), encoding="utf-8") as file:
    graph = json.load(file)

on_disk = {os.path.relpath(os.path.join(root, name), store) for root, _, names in os.walk(store) for name in names}
assert on_disk == set(graph["files"]) | {"graph.json"}, on_disk ^ set(graph["files"])
arrays = {path: np.load(os.path.join(store, path), mmap_mode="r", allow_pickle=False) for path in graph["files"]}
for path, entry in graph["files"].items():
    assert os.path.getsize(os.path.join(store, path)) == entry["bytes"], path
    assert arrays[path].flags.c_contiguous, path

parts = len(graph["halo_nodes"])
for node_type in graph["node_types"]:
    name, count = node_type["name"], node_type["count"]
    gid = arrays[f"global/{name}/gid.npy"]
    original = np.concatenate([arrays[f"part-{k:05d}/nodes/{name}/orig_ids.npy"] for k in range(parts)])
    assert gid.dtype == original.dtype == np.uint64
    assert (original[gid] == np.arange(count)).all(), name
    for feature in node_type["features"]:
        rows = np.concatenate([arrays[f"part-{k:05d}/nodes/{name}/feat/{feature['name']}.npy"] for k in range(parts)])
        assert rows.dtype.name == feature["dtype"] and list(rows.shape) == [count] + feature["row_shape"]
for relation in graph["relations"]:
    folder = "edges/{source}.{name}.{destination}".format(**relation)
    ids = []
    for k in range(parts):
        indptr, neighbors, edge_ids = (arrays[f"part-{k:05d}/{folder}/{array}.npy"]
                                       for array in ("indptr", "neighbors", "edge_ids"))
        assert (indptr.dtype, neighbors.dtype, edge_ids.dtype) == (np.uint64, np.uint32, np.uint64)
        assert indptr[-1] == len(neighbors) == len(edge_ids) == relation["partition_edges"][k]
        ids.append(edge_ids)
    assert (np.sort(np.concatenate(ids)) == np.arange(relation["count"])).all(), folder
print(f"{len(arrays)} arrays")
