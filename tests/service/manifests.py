"""Checks packaging/kubernetes without a cluster: manifests.py FILE... CONFIG

Prints what is wrong, one problem per line, and writes the options in the ConfigMap to the file CONFIG. Exits with 77 if
there is no YAML module.
"""

import sys

try:
    import yaml
except ImportError:
    sys.exit(77)

# API version and required fields of each kind.
KINDS = {
    "ConfigMap": ("v1", []),
    "Service": ("v1", ["selector", "ports"]),
    "StatefulSet": ("apps/v1", ["selector", "serviceName", "template"]),
    "PodDisruptionBudget": ("policy/v1", ["selector", "maxUnavailable"]),
    "NetworkPolicy": ("networking.k8s.io/v1", ["podSelector", "policyTypes"]),
}
# Requirements of the restricted level of the Pod Security Standards, and a read-only root file system.
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
problems = []


def expect(holds, text):
    if not holds:
        problems.append(text)


class NoRepeats(yaml.SafeLoader):
    """Duplicate keys are errors, as for the API server."""


def mapping(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value]
    for key in set(keys):
        expect(keys.count(key) == 1, f"line {node.start_mark.line + 1}: {key} is given twice")
    return loader.construct_mapping(node, deep=True)


NoRepeats.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


def check_container(pod, container, claims):
    name = container["name"]
    security = container.get("securityContext", {})
    for key, value in RESTRICTED.items():
        expect(security.get(key) == value, f"{name}: securityContext.{key} must be {value}")
    volumes = {volume["name"] for volume in pod.get("volumes", [])} | claims
    for mount in container.get("volumeMounts", []):
        expect(mount["name"] in volumes, f"{name}: no volume {mount['name']}")
    sources = [set(volume) - {"name"} for volume in pod.get("volumes", [])]
    expect(all(source in ({"configMap"}, {"secret"}) for source in sources), f"{name}: volumes of {sources}")
    expect(all("secretName" in volume["secret"] for volume in pod["volumes"] if "secret" in volume), "no secretName")
    used = {mount["name"] for mount in container.get("volumeMounts", [])}
    expect(volumes == used, f"{name}: volumes that nobody mounts: {sorted(volumes - used)}")
    ports = {port["name"] for port in container["ports"]}
    for probe in ("readinessProbe", "livenessProbe"):
        expect(probe in container, f"{name}: no {probe}")
        for action in ("tcpSocket", "httpGet"):
            port = container.get(probe, {}).get(action, {}).get("port")
            expect(port is None or port in ports, f"{name}: {probe}: no port {port}")
        # A follower, or a server whose disk is full, answers launchers; /readyz fails there.
        path = container.get(probe, {}).get("httpGet", {}).get("path")
        expect(path == "/healthz", f"{name}: {probe} asks for {path}")


def check_workload(document):
    spec = document["spec"]
    pod = spec["template"]["spec"]
    expect(spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items(),
           "the StatefulSet does not select its own pods")
    expect(pod.get("securityContext", {}).get("runAsNonRoot") is True, "the pod may run as root")
    expect(pod["securityContext"].get("seccompProfile") == {"type": "RuntimeDefault"}, "the pod has no seccomp profile")
    expect(pod.get("automountServiceAccountToken") is False, "the pod gets a token of the API server")
    claims = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
    for container in pod["containers"]:
        check_container(pod, container, claims)


def check_several(workload, arguments, documents):
    """Checks servers that share an etcd: their names, their start, and their access to etcd."""
    spec = workload["spec"]
    expect(spec.get("podManagementPolicy") == "Parallel", "the servers start one after the other")
    expect("volumeClaimTemplates" not in spec, "the records are in etcd, not in a volume")
    name = f"--advertise=$(POD_NAME).{spec['serviceName']}:"
    expect(any(argument.startswith(name) for argument in arguments), f"no argument {name}PORT")
    policy = next(d for d in documents if d["kind"] == "NetworkPolicy")["spec"]
    reached = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    expect(reached == {2379, 53}, f"NetworkPolicy lets out to {sorted(reached)}, not to etcd and the name server")


def check_links(documents, configuration):
    """Checks the references between the documents."""
    workload = next(d for d in documents if d["kind"] == "StatefulSet")
    labels = workload["spec"]["template"]["metadata"]["labels"]
    pod = workload["spec"]["template"]["spec"]
    ports = {port["name"] for container in pod["containers"] for port in container["ports"]}
    for document in documents:
        kind, spec = document["kind"], document.get("spec", {})
        selector = {
            "Service": lambda: spec["selector"],
            "NetworkPolicy": lambda: spec["podSelector"]["matchLabels"],
            "PodDisruptionBudget": lambda: spec["selector"]["matchLabels"],
        }.get(kind)
        expect(selector is None or selector().items() <= labels.items(), f"{kind} selects other pods")
    services = {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "Service"}
    own_names = services.get(workload["spec"]["serviceName"], {})
    expect(own_names.get("clusterIP") == "None", "serviceName is no headless Service: pods have no names")
    expect(own_names.get("publishNotReadyAddresses") is True, "pods have no names before they are ready")
    for spec in services.values():
        for port in spec["ports"]:
            expect(port["targetPort"] in ports, f"Service: no port {port['targetPort']}")
    for rule in next(d for d in documents if d["kind"] == "NetworkPolicy")["spec"]["ingress"]:
        expect(rule.get("from"), "NetworkPolicy lets everybody in")
        for port in rule["ports"]:
            expect(port["port"] in ports, f"NetworkPolicy: no port {port['port']}")
    config = next(d for d in documents if d["kind"] == "ConfigMap")
    names = {v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v}
    expect(names == {config["metadata"]["name"]}, f"volumes of ConfigMaps {names}")
    mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    arguments = pod["containers"][0]["args"]
    several = workload["spec"]["replicas"] > 1
    if several:
        check_several(workload, arguments, documents)
    for key, text in config["data"].items():
        expect(f"{mounts['config']}/{key}" in arguments, f"nobody reads {key}")
        expect(several == ("\netcd = " in "\n" + text), "etcd is for several servers, and they need it")
        expect(several or f'"{mounts["state"]}"' in text, "the state is not kept in the volume")
        expect(f'"{mounts["token"]}/' in text, "the token is not read from the Secret")
        # These folders exist only in the pod.
        lines = [line for line in text.splitlines() if not line.startswith(("state-dir", "token-file", "tls-"))]
        for argument in arguments:
            if argument.startswith("--advertise="):
                lines.append(f'advertise = "{argument.partition("=")[2].replace("$(POD_NAME)", "rendezvousd-0")}"')
        with open(configuration, "w") as file:
            file.write("\n".join(lines) + "\n")


def main(files, configuration):
    documents = []
    for name in files:
        with open(name) as file:
            documents += [d for d in yaml.load_all(file, Loader=NoRepeats) if d]
    for document in documents:
        kind = document.get("kind")
        if kind not in KINDS:
            problems.append(f"unknown kind {kind}")
            continue
        version, fields = KINDS[kind]
        expect(document.get("apiVersion") == version, f"{kind}: apiVersion must be {version}")
        expect(document.get("metadata", {}).get("name"), f"{kind} has no name")
        for field in fields:
            expect(field in document.get("spec", {}), f"{kind}: no spec.{field}")
        if kind == "StatefulSet":
            check_workload(document)
    expect({d.get("kind") for d in documents} == set(KINDS), f"kinds: {sorted({d.get('kind') for d in documents})}")
    if not problems:
        check_links(documents, configuration)
    print("\n".join(problems), end="")


main(sys.argv[1:-1], sys.argv[-1])
