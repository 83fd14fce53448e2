#!/usr/bin/env python3
"""Compares the event files of posttrain --tensorboard with TensorBoard's own code.

    python3 -m venv venv && venv/bin/pip install tensorboard
    venv/bin/python scripts/tracking/events.py read runs/mappo        # reads a run's files, as TensorBoard does
    venv/bin/python scripts/tracking/events.py golden internal/track/testdata  # writes the fixture of the Go tests

read fails where a number differs from metrics.jsonl, or a sample from samples.jsonl is missing.
"""
import argparse
import json
import pathlib
import struct
import sys

from tensorboard.backend.event_processing import event_accumulator
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
from tensorboard.summary.writer.record_writer import RecordWriter


def tag_of(metric):
    for split in ("eval", "test"):
        if metric.startswith(split + "_"):
            return split + "/" + metric[len(split) + 1:]
    return "train/" + metric


def logged(run):
    """The scalars of metrics.jsonl: tag, then (step, value) in the order of the file, as float32."""
    want = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        step = record.pop("step")
        record.pop("note", None)
        for name, x in record.items():
            value = struct.unpack("f", struct.pack("f", float("nan") if x is None else x))[0]
            want.setdefault(tag_of(name), []).append((step, value))
    return want


def read(run):
    events = event_accumulator.EventAccumulator(str(run / "tensorboard"), size_guidance={
        event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0})
    events.Reload()
    tags, faults = events.Tags(), []
    want = logged(run)
    if sorted(tags["scalars"]) != sorted(want):
        faults.append(f"tags {sorted(set(tags['scalars']) ^ set(want))} are in one alone")
    for tag in tags["scalars"]:
        got = [(e.step, e.value) for e in events.Scalars(tag)]
        if repr(got) != repr(want.get(tag)):
            wanted = want.get(tag, [])
            faults.append(f"{tag}: {len(got)} values {got[:3]}…, want {len(wanted)} {wanted[:3]}…")
    samples = run / "samples.jsonl"
    lines = samples.read_text().splitlines() if samples.exists() else []
    texts = sum(len(events.Tensors(t)) for t in tags["tensors"])
    if texts != len(lines):
        faults.append(f"{texts} samples, want {len(lines)}")
    if faults:
        sys.exit("\n".join(faults))
    print(f"{len(want)} scalars with {sum(map(len, want.values()))} values equal metrics.jsonl, {texts} samples")


def golden(folder):
    """Two events that Go writes too: the version, scalars and a text at step 3, and a restart at step 2."""
    text = tensor_pb2.TensorProto(dtype=7, string_val=["a\nb".encode()], tensor_shape=tensor_shape_pb2.TensorShapeProto(
        dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)]))
    metadata = summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"))
    values = [
        summary_pb2.Summary.Value(tag="train/loss", simple_value=0.6931471805599453),
        summary_pb2.Summary.Value(tag="train/rewards/chosen", simple_value=0),
        summary_pb2.Summary.Value(tag="samples/1", tensor=text, metadata=metadata),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "golden.tfevents", "wb") as f:
        out = RecordWriter(f)
        for e in (event_pb2.Event(wall_time=1700000000.5, file_version="brain.Event:2"),
                  event_pb2.Event(wall_time=1700000000.5, step=2, session_log=event_pb2.SessionLog(status=1)),
                  event_pb2.Event(wall_time=1700000000.5, step=3, summary=summary_pb2.Summary(value=values))):
            out.write(e.SerializeToString())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("do", choices=["read", "golden"])
    p.add_argument("folder", type=pathlib.Path, help="read: a run folder; golden: where the fixture goes")
    a = p.parse_args()
    {"read": read, "golden": golden}[a.do](a.folder)


if __name__ == "__main__":
    main()
