"""What an engine is told to make of a plan: limits, no privileges, no mounts of the host, one network. Pure.

`docker_config` is for the Docker API, which podman speaks as well. podman ignores its requests for GPUs without a word,
so a lease with GPUs is made by podman's own call (`libpod_config`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparewatt.core.limits import MIB
from sparewatt.node.leases.runtime.egress_table import AGENT_PORT
from sparewatt.node.leases.runtime.model import ContainerPlan
from sparewatt.node.leases.runtime.naming import LABEL_CONTENT, LeaseRange, container_name, labels_of

NAME_SERVERS = ("9.9.9.9", "1.1.1.1")
"""Public ones: the host's own is usually at a private address, which leases do not reach."""
CPU_PERIOD_US = 100_000
CPU_QUOTA_US_MIN = 1_000
"""The kernel's least."""
LOG_MIB_MAX = 16
"""Of what a program prints, kept by the engine on the host's disk; older lines are dropped."""
CDI_KIND = "nvidia.com/gpu"
VIA_VARIABLE = "SPAREWATT_NODE_LINK_VIA"
"""Tells a node in a lease where its machine's agent listens for it: the setting `link_via`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSide:
    """What of this machine goes into a container."""

    network: LeaseRange | None
    """None: no network at all."""
    has_quota: bool = False
    """Whether the file system enforces `disk_mib`."""


def docker_config(plan: ContainerPlan, side: MachineSide) -> dict[str, Any]:
    name, memory = container_name(plan.label), plan.memory_mib * MIB
    host: dict[str, Any] = {
        "NetworkMode": "none" if side.network is None else name,
        "Memory": memory,
        "MemorySwap": memory,  # memory and swap together: none of it is swap
        "CpuPeriod": CPU_PERIOD_US,
        "CpuQuota": cpu_quota_us(plan.cpu_milli),
        "PidsLimit": plan.pids_max,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": plan.read_only,
        "RestartPolicy": {"Name": "no"},
        "ShmSize": memory,  # counted as the lease's memory
        "LogConfig": {"Type": "json-file", "Config": {"max-size": f"{LOG_MIB_MAX}m"}},
    }
    if plan.read_only:
        host["Tmpfs"] = {"/tmp": f"rw,nosuid,nodev,size={memory}"}  # noqa: S108 (the container's own)
    if side.has_quota:
        host["StorageOpt"] = {"size": f"{plan.disk_mib}m"}
    if plan.gpu_ids:
        host["DeviceRequests"] = [{"Driver": "nvidia", "DeviceIDs": list(plan.gpu_ids), "Capabilities": [["gpu"]]}]
    config: dict[str, Any] = {
        "Image": plan.image,
        "Env": [f"{key}={value}" for key, value in environment(plan, side).items()],
        "Labels": _labels(plan),
        "HostConfig": host,
    }
    if plan.command:
        config["Entrypoint"], config["Cmd"] = [plan.command[0]], list(plan.command[1:])
    if side.network is not None:
        address = {"IPAMConfig": {"IPv4Address": side.network.container}}
        config["NetworkingConfig"] = {"EndpointsConfig": {name: address}}
        host["Dns"] = list(NAME_SERVERS) if not is_internal(plan) else []
    return config


def libpod_config(plan: ContainerPlan, side: MachineSide) -> dict[str, Any]:
    """The same for podman's own call, with GPUs by their CDI names."""
    name, memory = container_name(plan.label), plan.memory_mib * MIB
    config: dict[str, Any] = {
        "name": name,
        "image": plan.image,
        "env": environment(plan, side),
        "labels": _labels(plan),
        "resource_limits": {
            "memory": {"limit": memory, "swap": memory},
            "cpu": {"period": CPU_PERIOD_US, "quota": cpu_quota_us(plan.cpu_milli)},
            "pids": {"limit": plan.pids_max},
        },
        "cap_drop": ["ALL"],
        "no_new_privileges": True,
        "read_only_filesystem": plan.read_only,
        "restart_policy": "no",
        "shm_size": memory,
        "log_configuration": {"driver": "k8s-file", "size": LOG_MIB_MAX * MIB},
        "netns": {"nsmode": "none" if side.network is None else "bridge"},
        "devices": [{"path": cdi_name(gpu)} for gpu in plan.gpu_ids],
    }
    if plan.command:
        config["entrypoint"], config["command"] = [plan.command[0]], list(plan.command[1:])
    if plan.read_only:
        options = ["rw", "nosuid", "nodev", f"size={memory}"]
        config["mounts"] = [{"destination": "/tmp", "type": "tmpfs", "options": options}]  # noqa: S108 (as above)
    if side.has_quota:
        config["storage_opts"] = {"size": f"{plan.disk_mib}m"}
    if side.network is not None:
        config["networks"] = {name: {"static_ips": [side.network.container]}}
        config["dns_server"] = list(NAME_SERVERS) if not is_internal(plan) else []
    return config


def docker_network(plan: ContainerPlan, *, bridge: str, network: LeaseRange) -> dict[str, Any]:
    return {
        "Name": container_name(plan.label),
        "Driver": "bridge",
        "Internal": is_internal(plan),
        "EnableIPv6": False,
        "IPAM": {"Driver": "default", "Config": [{"Subnet": str(network.network), "Gateway": network.host}]},
        "Options": {"com.docker.network.bridge.name": bridge, "com.docker.network.bridge.enable_icc": "false"},
        "Labels": labels_of(plan.label, disk_mib=plan.disk_mib),
    }


def libpod_network(plan: ContainerPlan, *, bridge: str, network: LeaseRange) -> dict[str, Any]:
    """Without podman's name server, which would listen on the host."""
    return {
        "name": container_name(plan.label),
        "driver": "bridge",
        "network_interface": bridge,
        "subnets": [{"subnet": str(network.network), "gateway": network.host}],
        "ipv6_enabled": False,
        "internal": is_internal(plan),
        "dns_enabled": False,
        "labels": labels_of(plan.label, disk_mib=plan.disk_mib),
        "options": {"isolate": "true"},
    }


def environment(plan: ContainerPlan, side: MachineSide) -> dict[str, str]:
    """With the agent's port where the lease may reach it: only the machine knows the bridge's address."""
    if not plan.agent_port or side.network is None:
        return dict(plan.env)
    return {**plan.env, VIA_VARIABLE: f"http://{side.network.host}:{AGENT_PORT}"}


def _labels(plan: ContainerPlan) -> dict[str, str]:
    """Of the container; its bridge may outlive what runs on it."""
    content = {LABEL_CONTENT: plan.content} if plan.content else {}
    return {**labels_of(plan.label, disk_mib=plan.disk_mib), **content}


def is_internal(plan: ContainerPlan) -> bool:
    """Without a route to anywhere: the engine's own bar, beside the egress table."""
    return not (plan.egress or plan.agent_port)


def cdi_name(gpu_id: str) -> str:
    return gpu_id if "=" in gpu_id else f"{CDI_KIND}={gpu_id}"


def cpu_quota_us(cpu_milli: int) -> int:
    return max(CPU_QUOTA_US_MIN, cpu_milli * CPU_PERIOD_US // 1_000)
