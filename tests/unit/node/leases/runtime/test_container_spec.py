"""What an engine is told. Its own doing is tested by trying, in tests/contract."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

from sparewatt.core.limits import MIB
from sparewatt.node.leases.runtime.container_spec import (
    VIA_VARIABLE,
    MachineSide,
    cdi_name,
    cpu_quota_us,
    docker_config,
    docker_network,
    libpod_config,
    libpod_network,
)
from sparewatt.node.leases.runtime.egress_table import AGENT_PORT
from sparewatt.node.leases.runtime.model import ContainerPlan, LeaseLabel
from sparewatt.node.leases.runtime.naming import LeaseRange, container_name, labels_of

LABEL = LeaseLabel("0x1", 1, 1, "0xa")
PLAN = ContainerPlan(
    label=LABEL,
    image="registry.example/app:1",
    command=("python", "train.py", "--fast"),
    env={"A": "b=c"},
    cpu_milli=1_500,
    memory_mib=256,
    disk_mib=512,
    egress=True,
)
RANGE = LeaseRange(IPv4Network("10.201.0.0/30"))
SIDE = MachineSide(network=RANGE)


def host(plan: ContainerPlan, side: MachineSide = SIDE) -> dict[str, Any]:
    found: dict[str, Any] = docker_config(plan, side)["HostConfig"]
    return found


def test_limits_are_as_ordered_and_memory_has_no_swap() -> None:
    found = host(PLAN)
    assert (found["Memory"], found["MemorySwap"]) == (256 * MIB, 256 * MIB)
    assert found["CpuQuota"] / found["CpuPeriod"] == 1.5
    assert found["PidsLimit"] == PLAN.pids_max


def test_a_container_has_no_privileges_no_mounts_of_the_host_and_no_open_ports() -> None:
    found = host(replace(PLAN, ports=(80,), read_only=True))
    assert (found["CapDrop"], found["SecurityOpt"], found["ReadonlyRootfs"]) == (["ALL"], ["no-new-privileges"], True)
    never = {
        "Binds",
        "Mounts",
        "Devices",
        "PortBindings",
        "PublishAllPorts",
        "Privileged",
        "PidMode",
        "IpcMode",
        "CapAdd",
    }
    assert never & set(found) == set()
    assert found["RestartPolicy"] == {"Name": "no"}, "the engine restarts nothing behind the agent's back"
    assert list(found["Tmpfs"]) == ["/tmp"]  # noqa: S108
    assert "Tmpfs" not in host(PLAN)


def test_a_command_replaces_what_the_image_runs_and_none_leaves_it() -> None:
    config = docker_config(PLAN, SIDE)
    assert (config["Entrypoint"], config["Cmd"], config["Env"]) == (["python"], ["train.py", "--fast"], ["A=b=c"])
    assert {"Entrypoint", "Cmd"} & set(docker_config(replace(PLAN, command=()), SIDE)) == set()


def test_a_container_has_its_own_network_or_none() -> None:
    name = container_name(LABEL)
    config = docker_config(PLAN, SIDE)
    assert config["HostConfig"]["NetworkMode"] == name
    assert config["NetworkingConfig"]["EndpointsConfig"][name]["IPAMConfig"] == {"IPv4Address": "10.201.0.2"}
    assert config["Labels"] == labels_of(LABEL, disk_mib=512)
    alone = docker_config(PLAN, MachineSide(network=None))
    assert (alone["HostConfig"]["NetworkMode"], "NetworkingConfig" in alone) == ("none", False)


def test_a_quota_is_asked_for_only_where_it_holds() -> None:
    assert "StorageOpt" not in host(PLAN)
    assert host(PLAN, replace(SIDE, has_quota=True))["StorageOpt"] == {"size": "512m"}
    assert libpod_config(PLAN, replace(SIDE, has_quota=True))["storage_opts"] == {"size": "512m"}


def test_cards_are_named_one_by_one() -> None:
    assert "DeviceRequests" not in host(PLAN)
    (request,) = host(replace(PLAN, gpu_ids=("0", "GPU-7")))["DeviceRequests"]
    assert request == {"Driver": "nvidia", "DeviceIDs": ["0", "GPU-7"], "Capabilities": [["gpu"]]}
    devices = libpod_config(replace(PLAN, gpu_ids=("0", "GPU-7")), SIDE)["devices"]
    assert devices == [{"path": "nvidia.com/gpu=0"}, {"path": "nvidia.com/gpu=GPU-7"}]
    assert cdi_name("vendor.example/card=1") == "vendor.example/card=1"


def test_podmans_own_call_says_the_same() -> None:
    config = libpod_config(replace(PLAN, read_only=True), SIDE)
    limits = config["resource_limits"]
    assert limits["memory"] == {"limit": 256 * MIB, "swap": 256 * MIB}
    assert limits["cpu"]["quota"] / limits["cpu"]["period"] == 1.5
    assert limits["pids"] == {"limit": PLAN.pids_max}
    assert (config["cap_drop"], config["no_new_privileges"], config["read_only_filesystem"]) == (["ALL"], True, True)
    assert (config["entrypoint"], config["command"]) == (["python"], ["train.py", "--fast"])
    assert config["networks"] == {container_name(LABEL): {"static_ips": ["10.201.0.2"]}}
    assert [mount["type"] for mount in config["mounts"]] == ["tmpfs"]
    alone = libpod_config(PLAN, MachineSide(network=None))
    assert (alone["netns"], "networks" in alone) == ({"nsmode": "none"}, False)


def test_a_network_is_one_bridge_of_four_addresses_without_ipv6() -> None:
    docker = docker_network(PLAN, bridge="swle-1", network=RANGE)
    assert docker["IPAM"]["Config"] == [{"Subnet": "10.201.0.0/30", "Gateway": "10.201.0.1"}]
    assert (docker["EnableIPv6"], docker["Internal"]) == (False, False)
    assert docker["Options"]["com.docker.network.bridge.name"] == "swle-1"
    podman = libpod_network(PLAN, bridge="swle-1", network=RANGE)
    assert podman["subnets"] == [{"subnet": "10.201.0.0/30", "gateway": "10.201.0.1"}]
    assert (podman["ipv6_enabled"], podman["internal"], podman["network_interface"]) == (False, False, "swle-1")
    assert podman["dns_enabled"] is False, "its name server would listen on the host"
    assert docker["Labels"] == podman["labels"] == labels_of(LABEL, disk_mib=512)


def test_a_lease_without_egress_has_no_route_and_no_name_server() -> None:
    shut = replace(PLAN, egress=False)
    assert docker_network(shut, bridge="swln-1", network=RANGE)["Internal"]
    assert libpod_network(shut, bridge="swln-1", network=RANGE)["internal"]
    assert host(shut)["Dns"] == []
    assert not docker_network(replace(shut, agent_port=True), bridge="swlg-1", network=RANGE)["Internal"]


def test_a_sliver_of_a_processor_is_what_the_kernel_takes() -> None:
    assert (cpu_quota_us(1), cpu_quota_us(2_000)) == (1_000, 200_000)


def test_only_a_lease_with_the_agents_port_is_told_where_it_is_and_cannot_say_otherwise() -> None:
    lying = replace(PLAN, env={VIA_VARIABLE: "http://10.0.0.1:22"}, agent_port=True)
    told = f"http://{RANGE.host}:{AGENT_PORT}"
    assert docker_config(lying, SIDE)["Env"] == [f"{VIA_VARIABLE}={told}"]
    assert libpod_config(lying, SIDE)["env"] == {VIA_VARIABLE: told}
    assert docker_config(PLAN, SIDE)["Env"] == ["A=b=c"]
