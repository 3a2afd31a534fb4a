"""C++ of a proto file, by the protoc and the gRPC plugin of PATH."""

load("//third_party/precompiled:precompiled.bzl", "cc_library")

def cpp_proto(name, deps = [], grpc = False):
    """The libraries NAME_proto, of the messages, and NAME_grpc, of the services.

    The packages are tools of the generation, so that it runs again after an upgrade.

    Args:
      name: the file is NAME.proto.
      deps: names of the files that it imports, also through others.
      grpc: the file has services.
    """
    outs = [name + ".pb.h", name + ".pb.cc"]
    services = [name + ".grpc.pb.h", name + ".grpc.pb.cc"] if grpc else []
    native.genrule(
        name = name + "_gen",
        srcs = [file + ".proto" for file in [name] + deps],
        outs = outs + services,
        cmd = "protoc -I. -I/usr/include --cpp_out=$(GENDIR) $(location %s.proto)" % name +
              (" --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=$$(command -v grpc_cpp_plugin)" if grpc else ""),
        tools = ["@system//:protobuf"] + (["@system//:grpc"] if grpc else []),
    )
    cc_library(
        name = name + "_proto",
        srcs = [outs[1]],
        hdrs = [outs[0]],
        copts = ["-w"],
        deps = [":%s_proto" % dep for dep in deps] + ["@system//:protobuf"],
    )
    if grpc:
        cc_library(
            name = name + "_grpc",
            srcs = [services[1]],
            hdrs = [services[0]],
            copts = ["-w"],
            deps = [":%s_proto" % name, "@system//:grpc"],
        )
