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
    by_gid = arrays[f"global/{name}/orig_ids.npy"]
    assert by_gid.dtype == np.uint32 and (by_gid == original).all(), name
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

def node_times(type_name):
    """By gid; None where the type declares none."""
    feature = next(t for t in graph["node_types"] if t["name"] == type_name).get("time_feature")
    if feature is None:
        return None
    return np.concatenate([arrays[f"part-{k:05d}/nodes/{type_name}/feat/{feature}.npy"] for k in range(parts)])


def by_edge_id(relation, array):
    folder = "edges/{source}.{name}.{destination}".format(**relation)
    values = np.concatenate([arrays[f"part-{k:05d}/{folder}/{array}.npy"] for k in range(parts)])
    ids = np.concatenate([arrays[f"part-{k:05d}/{folder}/edge_ids.npy"] for k in range(parts)])
    result = np.empty_like(values)
    result[ids] = values
    return result


for relation in graph["relations"]:
    forward = graph["relations"][relation["reverse_of"]] if "reverse_of" in relation else relation
    sources = by_edge_id(relation, "neighbors")
    if "reverse_of" not in relation:
        path = "global/{source}.{name}.{destination}".format(**relation)
        source_ids = arrays[f"global/{relation['source']}/orig_ids.npy"][sources]
        in_degree, out_degree = arrays[path + "/in_degree.npy"], arrays[path + "/out_degree.npy"]
        assert in_degree.dtype == out_degree.dtype == np.uint32
        assert in_degree.sum() == out_degree.sum() == relation["count"]
        assert (np.bincount(source_ids, minlength=len(out_degree)) == out_degree).all(), path
    of_edges, of_nodes = relation.get("time_feature"), node_times(relation["source"])
    if of_edges is not None or of_nodes is not None:
        times = by_edge_id(relation, "times")
        assert times.dtype == np.int64
        expected = np.full(relation["count"], np.iinfo(np.int64).min)
        if of_edges is not None:
            expected = by_edge_id(forward, "feat/" + of_edges)
        if of_nodes is not None:
            expected = np.maximum(expected, of_nodes[sources])
        assert (times == expected).all(), relation["name"]
    weight = relation.get("weight_feature")
    if weight is not None and forward is not relation:
        weights = by_edge_id(relation, "weights")
        assert weights.dtype == np.float32 and (weights == by_edge_id(forward, "feat/" + weight)).all()
for split in graph["edge_splits"]:
    relation = graph["relations"][split["relation"]]
    name = "{source}.{name}.{destination}".format(**relation)
    seeds = arrays[f"global/{name}/split/{split['name']}.npy"]
    own = np.concatenate([arrays[f"part-{k:05d}/edges/{name}/split/{split['name']}.npy"] for k in range(parts)])
    assert seeds.dtype == own.dtype == np.uint64 and seeds.shape == own.shape == (split["count"], 2)
    originals = np.stack([arrays[f"global/{relation['source']}/orig_ids.npy"][own[:, 0]],
                          arrays[f"global/{relation['destination']}/orig_ids.npy"][own[:, 1]]], axis=1)
    assert (np.sort(originals, axis=0) == np.sort(seeds, axis=0)).all(), name
    if "labels" in split:
        labels = arrays[f"global/{name}/split/{split['name']}.labels.npy"]
        assert labels.dtype.name == split["labels"]["dtype"] and len(labels) == split["count"]
print(f"{len(arrays)} arrays")
