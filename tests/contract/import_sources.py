"""Small data sets in the layouts that farhop import reads, written as their own libraries write them.

Everything is made of one graph (random_graph), so that a test compares what comes back with that. numpy and torch write
their own formats; the binary files of DGL, which Debian has not, are written here byte by byte as DGL's
src/graph/serialize and include/dgl/runtime/ndarray.h describe them.
"""
import gzip
import json
import os
import pickle
import struct
from collections import defaultdict

import numpy as np


def random_graph(hetero, seed=3):
    """Node counts, edges, features and weights by type; partition of each node."""
    random = np.random.default_rng(seed)
    nodes = {"paper": 40, "author": 25} if hetero else {"_N": 50}
    relations = [("author", "writes", "paper"), ("paper", "cites", "paper")] if hetero else [("_N", "_E", "_N")]
    graph = {"nodes": nodes, "edges": {}, "edge_feat": {}, "weight": {}, "node_feat": {}, "part": {}}
    for name, count in nodes.items():
        graph["node_feat"][name] = random.random((count, 3), dtype=np.float32)
        graph["part"][name] = random.integers(0, 2, count)
        graph["part"][name][:2] = [0, 1]
    for index, (source, relation, destination) in enumerate(relations):
        edges = 150 - 60 * index
        ends = np.stack([random.integers(0, nodes[source], edges), random.integers(0, nodes[destination], edges)])
        graph["edges"][(source, relation, destination)] = ends
        graph["edge_feat"][(source, relation, destination)] = random.random((edges, 2), dtype=np.float32)
        graph["weight"][(source, relation, destination)] = random.random(edges, dtype=np.float32)
    return graph


def save_csv_gz(path, rows):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with gzip.open(path, "wt") as out:
        for row in rows:
            out.write(",".join(str(value) for value in np.atleast_1d(row)) + "\n")


# OGB, https://github.com/snap-stanford/ogb ogb/io/read_graph_raw.py

def write_ogb(graph, root, binary=False):
    raw = os.path.join(root, "raw")
    os.makedirs(raw)
    nodes = graph["nodes"]["_N"]
    (relation, ends), = graph["edges"].items()
    label = np.arange(nodes) % 5
    year = 2000 + np.arange(nodes)
    if binary:
        np.savez_compressed(os.path.join(raw, "data.npz"), edge_index=ends, num_nodes_list=np.array([nodes]),
                            num_edges_list=np.array([ends.shape[1]]), node_feat=graph["node_feat"]["_N"],
                            node_year=year[:, None], edge_feat=graph["edge_feat"][relation])
        label = np.where(np.arange(nodes) < 30, label, np.nan).astype(np.float32)[:, None]
        np.savez(os.path.join(raw, "node-label.npz"), node_label=label)
    else:
        save_csv_gz(raw + "/edge.csv.gz", ends.T)
        save_csv_gz(raw + "/num-node-list.csv.gz", [nodes])
        save_csv_gz(raw + "/num-edge-list.csv.gz", [ends.shape[1]])
        save_csv_gz(raw + "/node-feat.csv.gz", graph["node_feat"]["_N"])
        save_csv_gz(raw + "/node_year.csv.gz", year)
        save_csv_gz(raw + "/edge-feat.csv.gz", graph["edge_feat"][relation])
        save_csv_gz(raw + "/node-label.csv.gz", label)
        save_csv_gz(root + "/mapping/nodeidx2paperid.csv.gz", ["node idx", "7"])
    for name, ids in (("train", range(0, 20)), ("valid", range(20, 25)), ("test", range(25, 30))):
        save_csv_gz(f"{root}/split/time/{name}.csv.gz", ids)


def write_ogb_hetero(graph, root, binary=False):
    raw = os.path.join(root, "raw")
    os.makedirs(raw)
    names = {"___".join(relation): ends for relation, ends in graph["edges"].items()}
    if binary:
        np.savez(raw + "/num_nodes_dict.npz", **{name: np.array([count]) for name, count in graph["nodes"].items()})
        np.savez(raw + "/num_edges_dict.npz", **{name: np.array([ends.shape[1]]) for name, ends in names.items()})
        np.savez(raw + "/edge_index_dict.npz", **names)
        np.savez(raw + "/node_feat.npz", **graph["node_feat"])
        np.savez(raw + "/node-label.npz", paper=np.arange(40)[:, None] % 4)
    else:
        save_csv_gz(raw + "/num-node-dict.csv.gz", [list(graph["nodes"]), list(graph["nodes"].values())])
        save_csv_gz(raw + "/triplet-type-list.csv.gz", list(graph["edges"]))
        for relation, ends in graph["edges"].items():
            where = raw + "/relations/" + "___".join(relation)
            save_csv_gz(where + "/edge.csv.gz", ends.T)
            save_csv_gz(where + "/num-edge-list.csv.gz", [ends.shape[1]])
            save_csv_gz(where + "/edge_reltype.csv.gz", [9] * ends.shape[1])
        for name, rows in graph["node_feat"].items():
            save_csv_gz(f"{raw}/node-feat/{name}/node-feat.csv.gz", rows)
        save_csv_gz(raw + "/node-label/paper/node-label.csv.gz", np.arange(40) % 4)
    for name, ids in (("train", range(0, 20)), ("valid", range(20, 30)), ("test", range(30, 40))):
        save_csv_gz(f"{root}/split/time/paper/{name}.csv.gz", ids)


# PyG, torch_geometric/distributed/partition.py

def write_pyg(graph, root, hetero):
    import torch
    os.makedirs(root)
    types, relations = list(graph["nodes"]), list(graph["edges"])
    node_offset, edge_offset, total = {}, {}, 0
    for name in types:
        node_offset[name], total = total, total + graph["nodes"][name]
    total = 0
    for relation in relations:
        edge_offset[relation], total = total, total + graph["edges"][relation].shape[1]
    meta = {"num_parts": 2, "node_types": types if hetero else None, "edge_types": relations if hetero else None,
            "node_offset": list(node_offset.values()) if hetero else None, "is_hetero": hetero, "is_sorted": True}
    with open(root + "/META.json", "w") as out:
        json.dump(meta, out)
    owner = {r: graph["part"][r[2]][ends[1]] for r, ends in graph["edges"].items()}
    for part in range(2):
        where = f"{root}/part_{part}"
        os.makedirs(where)
        out_graph, nfeat, efeat = {}, {}, defaultdict(dict)
        for relation in relations:
            ends = graph["edges"][relation]
            ids = np.flatnonzero(owner[relation] == part)
            ids = ids[np.argsort(ends[1][ids], kind="stable")]
            # Edge ids are global here, and local to the relation beside the features.
            out_graph[relation] = {"edge_id": torch.from_numpy(ids + edge_offset[relation]),
                                   "row": torch.from_numpy(ends[0][ids]), "col": torch.from_numpy(ends[1][ids]),
                                   "size": (graph["nodes"][relation[0]], graph["nodes"][relation[2]])}
            efeat[relation].update({"global_id": torch.from_numpy(ids),
                                    "feats": dict(edge_attr=torch.from_numpy(graph["edge_feat"][relation][ids]))})
        for name in types:
            ids = np.flatnonzero(graph["part"][name] == part)[::-1].copy()
            nfeat[name] = {"global_id": torch.from_numpy(ids + node_offset[name]), "id": torch.from_numpy(ids),
                           "feats": dict(x=torch.from_numpy(graph["node_feat"][name][ids])),
                           "time": torch.arange(graph["nodes"][name])}
        if not hetero:
            out_graph, nfeat, efeat = out_graph[relations[0]], nfeat["_N"], defaultdict(None, efeat[relations[0]])
            del nfeat["id"]
        torch.save(out_graph, where + "/graph.pt")
        torch.save(nfeat, where + "/node_feats.pt")
        torch.save(efeat, where + "/edge_feats.pt")
    if not hetero:
        torch.save(torch.from_numpy(graph["part"]["_N"]), root + "/node_map.pt")
        # As torch wrote files before 1.6.
        torch.save(torch.from_numpy(owner[relations[0]]), root + "/edge_map.pt", _use_new_zipfile_serialization=False)
        return
    os.makedirs(root + "/node_map")
    os.makedirs(root + "/edge_map")
    for name in types:
        torch.save(torch.from_numpy(graph["part"][name]), f"{root}/node_map/{name}.pt")
    for relation in relations:
        torch.save(torch.from_numpy(owner[relation]), f"{root}/edge_map/{'__'.join(relation)}.pt")


# GraphLearn-for-PyTorch, graphlearn_torch/python/partition/base.py

def write_graphlearn(graph, root, hetero):
    import torch
    os.makedirs(root)
    types, relations = list(graph["nodes"]), list(graph["edges"])
    with open(root + "/META", "wb") as out:
        pickle.dump({"num_parts": 2, "data_cls": "hetero" if hetero else "homo", "node_types": types if hetero else None,
                     "edge_types": relations if hetero else None}, out, pickle.HIGHEST_PROTOCOL)
    if hetero:
        os.makedirs(root + "/node_pb")
    for name in types:
        torch.save(torch.from_numpy(graph["part"][name]), f"{root}/node_pb/{name}.pt" if hetero else root + "/node_pb.pt")

    def append(path, array):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab") as out:
            pickle.dump(torch.from_numpy(array), out)

    for part in range(2):
        for name in types:
            where = f"{root}/part{part}/node_feat" + (f"/{name}" if hetero else "")
            ids = np.flatnonzero(graph["part"][name] == part)
            for chunk in np.array_split(ids, 3):
                append(where + "/feats.pkl", graph["node_feat"][name][chunk])
                append(where + "/ids.pkl", chunk)
            torch.save(torch.from_numpy(graph["node_feat"][name][:4]), where + "/cache_feats.pt")
            torch.save(torch.arange(4), where + "/cache_ids.pt")
        for relation in relations:
            ends = graph["edges"][relation]
            below = "/" + "__".join(relation) if hetero else ""
            where = f"{root}/part{part}/graph{below}"
            ids = np.flatnonzero(graph["part"][relation[0]][ends[0]] == part)
            os.makedirs(where)
            for stem, array in (("rows", ends[0][ids]), ("cols", ends[1][ids]), ("eids", ids),
                                ("weights", graph["weight"][relation][ids])):
                torch.save(torch.from_numpy(array), f"{where}/{stem}.pt")
            append(f"{root}/part{part}/edge_feat{below}/feats.pkl", graph["edge_feat"][relation][ids])
            append(f"{root}/part{part}/edge_feat{below}/ids.pkl", ids)


# GraphBolt, python/dgl/graphbolt/impl: the state of a FusedCSCSamplingGraph inside objects that nobody here can build.

class ScriptObject:
    def __init__(self, state):
        self.state = state

    def __reduce__(self):
        return (ScriptObject, (), (self.state, "__torch__.torch.classes.graphbolt.FusedCSCSamplingGraph"))


def fused_state(graph, extra_nodes=None, extra_edges=None):
    import torch
    types, relations = list(graph["nodes"]), list(graph["edges"])
    offsets = np.concatenate([[0], np.cumsum([graph["nodes"][name] for name in types])])
    source, destination, kind, original, weight = [], [], [], [], []
    for number, relation in enumerate(relations):
        ends = graph["edges"][relation]
        source.append(ends[0] + offsets[types.index(relation[0])])
        destination.append(ends[1] + offsets[types.index(relation[2])])
        kind.append(np.full(ends.shape[1], number))
        original.append(np.arange(ends.shape[1]))
        weight.append(graph["weight"][relation])
    source, destination, kind, original, weight = map(np.concatenate, (source, destination, kind, original, weight))
    order = np.argsort(destination, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(destination, minlength=offsets[-1]))])
    tensors = {"version_number": torch.tensor([0]), "indptr": torch.from_numpy(indptr), "indices": torch.from_numpy(source[order])}
    state = {"independent_tensors": tensors,
             "edge_attributes": {"_ORIGINAL_EDGE_ID": torch.from_numpy(original[order]), "weight": torch.from_numpy(weight[order])}}
    if len(types) > 1:
        tensors["node_type_offset"] = torch.from_numpy(offsets)
        tensors["type_per_edge"] = torch.from_numpy(kind[order].astype(np.uint8))
        state["node_type_to_id"] = {name: torch.tensor(number) for number, name in enumerate(types)}
        state["edge_type_to_id"] = {":".join(relation): torch.tensor(number) for number, relation in enumerate(relations)}
    return state


def write_graphbolt_preprocessed(graph, root):
    import torch
    os.makedirs(root + "/preprocessed")
    torch.save({"graph": ScriptObject(fused_state(graph))}, root + "/preprocessed/fused.pt")
    features = []
    for name, rows in graph["node_feat"].items():
        torch.save(torch.from_numpy(rows), f"{root}/preprocessed/{name}.pt")
        features.append(f"- {{domain: node, type: {name}, name: feat, format: torch, path: {name}.pt, in_memory: true}}\n")
    with open(root + "/preprocessed/metadata.yaml", "w") as out:
        out.write("dataset_name: fused\ngraph_topology: {type: FusedCSCSamplingGraph, path: fused.pt}\nfeature_data:\n" + "".join(features))


# DGL, src/graph/serialize and include/dgl/runtime/ndarray.h

def dgl_array(array):
    code = {"i": 0, "u": 1, "f": 2}[array.dtype.kind]
    head = struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, array.ndim, code, array.dtype.itemsize * 8, 1)
    return head + struct.pack(f"<{array.ndim}q", *array.shape) + struct.pack("<q", array.nbytes) + np.ascontiguousarray(array).tobytes()


def dgl_text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def dgl_named(tensors):
    return struct.pack("<Q", len(tensors)) + b"".join(dgl_text(name) + dgl_array(array) for name, array in tensors.items())


def save_dgl_tensors(path, tensors):
    with open(path, "wb") as out:
        out.write(struct.pack("<QQ", 0xDD5A9FBE3FA2443F, len(tensors)) + dgl_named(tensors))


def save_dgl_graph(path, nodes, source, destination, node_data, edge_data, form):
    empty = np.zeros(0, np.int64)

    def csr(rows, columns, size):
        order = np.argsort(rows, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=size))])
        return (struct.pack("<Qqq", 0xDD6CD31205DFF127, size, size) + dgl_array(indptr) + dgl_array(columns[order]) +
                dgl_array(order) + b"\0")

    meta = struct.pack("<QQqq", 0xDD3C5FFE20046ABF, 0xDD6CD31205DFF127, 1, 1) + dgl_array(np.array([0, 1])) + dgl_array(
        np.array([0])) + dgl_array(empty) + b"\0"
    unit = struct.pack("<QQQ", 0xDD2E60F0F6B4A127, form | 1 << 32, 7 | 1 << 32)
    if form == 1:
        unit += (struct.pack("<Qqq", 0xDD61FFD305DFF127, nodes, nodes) + dgl_array(source) + dgl_array(destination) +
                 dgl_array(empty) + b"\0\0")
    else:
        unit += csr(source, destination, nodes) if form == 2 else csr(destination, source, nodes)
    data = struct.pack("<Q", 0xDD589FBE35224ABF) + meta + struct.pack("<Q", 1) + unit + struct.pack("<Qq", 1, nodes)
    data += struct.pack("<Q", 1) + dgl_named(node_data) + struct.pack("<Q", 1) + dgl_named(edge_data)
    data += struct.pack("<Q", 1) + dgl_text("_N") + struct.pack("<Q", 1) + dgl_text("_E")
    head = struct.pack("<QQQQ", 0xDD2E4FF046B4A13F, 2, 2, 1).ljust(4096, b"\0")
    labels = struct.pack("<Q", 0)
    begin = len(head) + 8 + len(labels)
    index = struct.pack("<QQ", 1, begin)
    with open(path, "wb") as out:
        out.write(head + struct.pack("<Q", begin) + labels + data + dgl_text_bytes(index) + struct.pack("<Q", len(index)))


def dgl_text_bytes(content):
    return struct.pack("<Q", len(content)) + content


def write_dgl(graph, root, originals, graphbolt=False):
    """Partitions as dgl.distributed writes them; returns new -> old ids by type. With `originals` they are written, too."""
    import torch
    os.makedirs(root)
    types, relations = list(graph["nodes"]), list(graph["edges"])
    node_map, edge_map = {name: [] for name in types}, {":".join(r): [] for r in relations}
    node_gid = {name: np.zeros(graph["nodes"][name], np.int64) for name in types}
    edge_gid = {r: np.zeros(graph["edges"][r].shape[1], np.int64) for r in relations}
    old_nodes, old_edges = {name: [] for name in types}, {r: [] for r in relations}
    next_node = next_edge = 0
    owned = []
    for part in range(2):
        mine = {}
        for name in types:
            ids = np.flatnonzero(graph["part"][name] == part)
            node_map[name].append([next_node, next_node + len(ids)])
            node_gid[name][ids] = next_node + np.arange(len(ids))
            next_node += len(ids)
            old_nodes[name].append(ids)
            mine[name] = ids
        for r in relations:
            ids = np.flatnonzero(graph["part"][r[2]][graph["edges"][r][1]] == part)
            edge_map[":".join(r)].append([next_edge, next_edge + len(ids)])
            edge_gid[r][ids] = next_edge + np.arange(len(ids))
            next_edge += len(ids)
            old_edges[r].append(ids)
            mine[r] = ids
        owned.append(mine)
    config = {"graph_name": "small", "num_nodes": next_node, "num_edges": next_edge, "num_parts": 2, "node_map": node_map,
              "edge_map": edge_map, "ntypes": {name: i for i, name in enumerate(types)},
              "etypes": {":".join(r): i for i, r in enumerate(relations)}}
    for part in range(2):
        where = f"{root}/part{part}"
        os.makedirs(where)
        source = np.concatenate([node_gid[r[0]][graph["edges"][r][0][owned[part][r]]] for r in relations])
        destination = np.concatenate([node_gid[r[2]][graph["edges"][r][1][owned[part][r]]] for r in relations])
        edges = np.concatenate([edge_gid[r][owned[part][r]] for r in relations])
        halo = np.unique(np.concatenate([source, destination]))
        local = {gid: i for i, gid in enumerate(halo)}
        source = np.array([local[gid] for gid in source])
        destination = np.array([local[gid] for gid in destination])
        if graphbolt:
            order = np.argsort(destination, kind="stable")
            indptr = np.concatenate([[0], np.cumsum(np.bincount(destination, minlength=len(halo)))])
            state = {"independent_tensors": {"indptr": torch.from_numpy(indptr), "indices": torch.from_numpy(source[order])},
                     "node_attributes": {"_ID": torch.from_numpy(halo)}, "edge_attributes": {"_ID": torch.from_numpy(edges[order])}}
            torch.save(ScriptObject(state), where + "/fused_csc_sampling_graph.pt")
        else:
            save_dgl_graph(where + "/graph.dgl", len(halo), source, destination, {"_ID": halo, "inner_node": np.ones(len(halo), np.uint8)},
                           {"_ID": edges}, form=(1, 4)[part])
        save_dgl_tensors(where + "/node_feat.dgl", {f"{name}/feat": graph["node_feat"][name][owned[part][name]] for name in types})
        save_dgl_tensors(where + "/edge_feat.dgl", {":".join(r) + "/feat": graph["edge_feat"][r][owned[part][r]] for r in relations})
        if originals:
            save_dgl_tensors(where + "/orig_nids.dgl", {name: owned[part][name] for name in types})
            save_dgl_tensors(where + "/orig_eids.dgl", {":".join(r): owned[part][r] for r in relations})
        config[f"part-{part}"] = {"node_feats": f"part{part}/node_feat.dgl", "edge_feats": f"part{part}/edge_feat.dgl",
                                  ("part_graph_graphbolt" if graphbolt else "part_graph"):
                                  f"part{part}/" + ("fused_csc_sampling_graph.pt" if graphbolt else "graph.dgl")}
    with open(root + "/small.json", "w") as out:
        json.dump(config, out)
    return ({name: np.concatenate(ids) for name, ids in old_nodes.items()}, {r: np.concatenate(ids) for r, ids in old_edges.items()})
