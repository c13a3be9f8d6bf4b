"""A data set for whole trainings in seconds."""
import numpy


def write_dataset(directory):
    """Two classes that only a node's neighbours tell apart: features are noise with a faint sign, edges stay
    within the class."""
    random = numpy.random.default_rng(5)
    nodes, classes = 600, 3
    label = random.integers(0, classes, nodes)
    members = [numpy.flatnonzero(label == c) for c in range(classes)]
    source = numpy.repeat(numpy.arange(nodes), 6)
    destination = numpy.array([random.choice(members[label[s]]) for s in source])
    x = random.normal(0, 1, (nodes, 8)).astype(numpy.float32)
    x[numpy.arange(nodes), label] += 1.0
    directory.mkdir()
    numpy.save(directory / "edges.npy", numpy.stack([source, destination]))
    numpy.save(directory / "x.npy", x)
    numpy.save(directory / "label.npy", label.astype(numpy.int64))
    order = random.permutation(nodes)
    splits = {"train_set": order[:300], "validation_set": order[300:450], "test_set": order[450:]}
    tasks = ""
    for name, ids in splits.items():
        numpy.save(directory / f"{name}.npy", ids)
        tasks += f"    {name}:\n      - type: node\n        data:\n          - {{name: seeds, format: numpy, path: {name}.npy}}\n"
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
