"""Reads a trace with Perfetto's own description and prints, as JSON, how many packets of each kind it has.

    PYTHONPATH=FOLDER/python python3 trace.py TRACE

A field that the description doesn't have is an error.
"""

import collections
import json
import sys

from google.protobuf import unknown_fields
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos


def check(message):
    unknown = [field.field_number for field in unknown_fields.UnknownFieldSet(message)]
    if unknown:
        raise SystemExit(f"{message.DESCRIPTOR.full_name} has no fields {unknown}")
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for one in value if field.is_repeated else [value]:
            check(one)


trace = protos.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
check(trace)
kinds = collections.Counter(packet.WhichOneof("data") or "none" for packet in trace.packet)
leaves = collections.Counter()
names, frames, stacks, counts = {}, {}, {}, {}
for packet in trace.packet:
    own = packet.trusted_packet_sequence_id
    data = packet.interned_data
    names.update({(own, one.iid): one.str.decode() for one in data.function_names})
    frames.update({(own, one.iid): one.function_name_id for one in data.frames})
    stacks.update({(own, one.iid): list(one.frame_ids) for one in data.callstacks})
    if packet.HasField("perf_sample"):
        sample = packet.perf_sample
        before = counts.get((own, sample.cpu), 0)
        counts[own, sample.cpu] = sample.timebase_count
        stack = stacks[own, sample.callstack_iid]
        if stack:
            leaves[names[own, frames[own, stack[-1]]]] += sample.timebase_count - before
print(json.dumps({"kinds": kinds, "leaves": leaves}))
