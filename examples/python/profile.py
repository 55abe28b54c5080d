#!/usr/bin/env python3
"""Prints the stacks that hold most memory, by the API of samplerd.

The client knows no .proto file: it asks samplerd for the description of its
messages (gRPC reflection). Set up, and run as root while samplerd runs:

    python3 -m venv venv
    venv/bin/pip install -r requirements.txt
    sudo venv/bin/python profile.py [unix:PATH | 127.0.0.1:PORT]
"""

import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

ADDRESS = "unix:/run/sampler/samplerd.sock"
SERVICE = "sampler.v1.Sampler"
MAX_MESSAGE_BYTES = 256 << 20
STACKS = 5


class Sampler:
    """The methods of the service, each taking the fields of its request."""

    def __init__(self, channel):
        self.channel = channel
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        self.service = pool.FindServiceByName(SERVICE)

    def ask(self, method, **fields):
        described = self.service.FindMethodByName(method)
        request = GetMessageClass(described.input_type)(**fields)
        call = self.channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(described.output_type).FromString,
        )
        return call(request, timeout=60)


def main():
    address = sys.argv[1] if len(sys.argv) > 1 else ADDRESS
    options = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
    with grpc.insecure_channel(address, options=options) as channel:
        try:
            show(Sampler(channel))
        except grpc.RpcError as error:
            sys.exit(f"{address}: {error.details()} (is samplerd running? are you root?)")


def show(sampler):
    status = sampler.ask("Status")
    print(f"samplerd {status.version}, {len(status.intervals)} processes")
    profile = sampler.ask("GetProfile", kind="KIND_LIVE", top=STACKS)
    print("held", size(profile.totals.inuse_space))
    for note in profile.notes:
        print("note", note)
    for stack in profile.stacks:
        print(f"\n{size(stack.quantities.inuse_space)}, pid {stack.pid}")
        for index in stack.locations:
            print("   ", names(profile, index))


def size(quantity):
    """A number of bytes with its interval. Without an upper end, `high` is infinite."""
    mib = [bytes_ / (1 << 20) for bytes_ in (quantity.value, quantity.low, quantity.high)]
    return "{:.1f} MiB ({:.1f} to {:.1f})".format(*mib)


def names(profile, index):
    """The functions of a frame, innermost inlined function first."""
    lines = profile.locations[index].lines
    return " < ".join(profile.strings[line.function] for line in lines) or "[unknown]"


if __name__ == "__main__":
    main()
