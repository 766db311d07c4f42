"""Runs on a kernel with bonds, VLANs, fq and WireGuard: are they on the paths of flows, with their rates? See `run`.

Lines are as check.py's. Two namespaces, `a` and `b`, are joined by two wires that a bond has, with a VLAN on it, and by
a third one under WireGuard.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from netprof.probes.flow.probe import FlowProbe
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.nic.namespaces import Namespace, Namespaces
from netprof.probes.nic.path_walk import find_path
from netprof.probes.nic.settings import facts_of
from netprof.schema import RECEIVE, TRANSMIT, HopKind

MODULES = Path("/modules")
SPACES = ("a", "b")
ANSWER = """
import socket
listener = socket.create_server(("", 7777))
print("ready", flush=True)
while True:
    peer, _ = listener.accept()
    while data := peer.recv(1 << 16):
        peer.sendall(data)
"""
ASK = """
import socket, sys
peer = socket.create_connection((sys.argv[1], 7777), 20)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    peer.sendall(bytes(1000))
    peer.recv(1 << 16)
print("done", flush=True)
sys.stdin.readline()
"""


class WrongError(Exception):
    """Something is not as it should be."""


def say(name: str, result: str) -> None:
    print(f"check: {name}: {result}", flush=True)


def insist(right: bool, otherwise: object) -> None:
    if not right:
        raise WrongError(str(otherwise))


def command(line: str, given: str = "") -> str:
    done = subprocess.run(line.split(), input=given, capture_output=True, text=True, check=False, timeout=60)
    insist(done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"[-500:])
    return done.stdout


def load_modules() -> None:
    """Load what there is, in whatever order works."""
    left = [MODULES / f"{name}.ko" for name in (MODULES / "order").read_text().split()]
    for _ in range(len(left)):
        failed = [
            each for each in left if subprocess.run(["/bin/busybox", "insmod", each], capture_output=True).returncode
        ]
        if len(failed) == len(left):
            return
        left = failed


def make_bonds() -> None:
    """Join the namespaces by a VLAN on a bond of two wires, of which one has fq with a rate."""
    for space in SPACES:
        command(f"ip netns add {space}")
        command(f"ip -n {space} link set lo up")
        command(f"ip -n {space} link add bond0 type bond mode active-backup miimon 100")
    for wire in ("m0", "m1"):
        command(f"ip -n a link add {wire} type veth peer name {wire} netns b")
        for space in SPACES:
            command(f"ip -n {space} link set {wire} master bond0")
            command(f"ip -n {space} link set {wire} up")
    for number, space in enumerate(SPACES, 1):
        command(f"ip -n {space} link set bond0 up")
        command(f"ip -n {space} link set bond0 type bond active_slave m0")
        command(f"ip -n {space} link add link bond0 name bond0.5 type vlan id 5")
        command(f"ip -n {space} link set bond0.5 up")
        command(f"ip -n {space} address add 10.5.0.{number}/24 dev bond0.5")
    command("tc -n a qdisc replace dev m0 root fq maxrate 200mbit")


def make_tunnel() -> None:
    """Join the namespaces by WireGuard over a third wire."""
    command("ip -n a link add e0 type veth peer name e0 netns b")
    keys = {space: command("wg genkey").strip() for space in SPACES}
    for number, space in enumerate(SPACES, 1):
        command(f"ip -n {space} address add 10.6.0.{number}/24 dev e0")
        command(f"ip -n {space} link set e0 up")
        command(f"ip -n {space} link add wg0 type wireguard")
        Path(f"/tmp/{space}.key").write_text(keys[space])
        other = SPACES[2 - number]
        peer = command("wg pubkey", keys[other]).strip()
        settings = f"listen-port 51820 private-key /tmp/{space}.key peer {peer} allowed-ips 0.0.0.0/0"
        command(f"ip netns exec {space} wg set wg0 {settings} endpoint 10.6.0.{3 - number}:51820")
        command(f"ip -n {space} address add 10.7.0.{number}/24 dev wg0")
        command(f"ip -n {space} link set wg0 up")


def path(
    places: Namespaces, place: Namespace, device: str, remote: str, direction: int = TRANSMIT
) -> list[tuple[str, str]]:
    place.forget()
    hops = find_path(places, place, device, direction, remote)
    return [(hop.kind.name, hop.device) for hop in hops if hop.kind is not HopKind.UNSEEN]


def beginning(found: list[tuple[str, str]], *wanted: tuple[HopKind, str]) -> str:
    insist(found[: len(wanted)] == [(kind.name, device) for kind, device in wanted], found)
    return " → ".join(device for _, device in wanted)


def judge_bond(places: Namespaces, place: Namespace) -> None:
    stacked = (HopKind.FLOW, "bond0.5"), (HopKind.BELOW, "bond0")
    said = beginning(path(places, place, "bond0.5", "10.5.0.2"), *stacked, (HopKind.MEMBER, "m0"))
    insist(len(path(places, place, "bond0.5", "10.5.0.2")) == 3, "the member that rests is on the path")
    say("bond", said)
    command("ip -n a link set bond0 down")
    for wire in ("m0", "m1"):
        command(f"ip -n a link set {wire} nomaster")
    command("ip -n a link set bond0 type bond mode balance-xor")
    for wire in ("m0", "m1"):
        command(f"ip -n a link set {wire} down")
        command(f"ip -n a link set {wire} master bond0")
        command(f"ip -n a link set {wire} up")
    command("ip -n a link set bond0 up")
    command("ip -n a link set bond0.5 up")
    members = (HopKind.MEMBER, "m0"), (HopKind.MEMBER, "m1")
    say("hash", beginning(path(places, place, "bond0.5", "10.5.0.2"), *stacked, *members))


def judge_rate(place: Namespace) -> None:
    facts = {(device, name): value for device, name, value in facts_of(place, ["m0"])}
    found = facts["m0", "flow_rate_bps"]
    insist(found == "200000000", found)
    say("rate", f"{found} bit/s for each flow by fq")


def start(space: str, program: str, *words: str) -> subprocess.Popen[str]:
    """Start a program in a namespace, and wait until it is ready."""
    process = subprocess.Popen(
        ["ip", "netns", "exec", space, sys.executable, "-S", "-c", program, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    said(process)
    return process


def said(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    insist(bool(process.stdout.readline()), "a program ended")


def judge_devices(remote: str, device: str) -> str:
    """Let a process talk to the other namespace, and return by which devices the flow probe saw that."""
    asks = start("a", ASK, remote)
    probe = FlowProbe(1_000_000)
    probe.targets.add(asks.pid)
    probe.follow(())
    assert asks.stdin is not None
    print(file=asks.stdin, flush=True)
    said(asks)
    rows = probe.drain(final=True)["flow_devices"]
    found = dict(zip(map(int, rows["direction"]), map(str, rows["device"]), strict=True))
    insist(found == {TRANSMIT: device, RECEIVE: device}, f"{found}, not {device}")
    asks.kill()
    probe.close()
    return f"{remote} by {device}"


def judge() -> None:
    Path("/run/netns").mkdir(parents=True, exist_ok=True)
    load_modules()
    make_bonds()
    make_tunnel()
    answers = start("b", ANSWER)
    places = Namespaces()
    place = places.take(NetworkNamespace(os.open("/run/netns/a", os.O_RDONLY)))
    insist(place is not None, "namespace a cannot be opened")
    assert place is not None
    say("devices", f"{judge_devices('10.5.0.2', 'bond0.5')}, {judge_devices('10.7.0.2', 'wg0')}")
    tunnel = (HopKind.FLOW, "wg0"), (HopKind.TUNNEL, "e0")
    say("wireguard", beginning(path(places, place, "wg0", "10.7.0.2"), *tunnel))
    judge_rate(place)
    judge_bond(places, place)
    answers.kill()
    places.close()


def main() -> None:
    say("kernel", f"{platform.release()} {platform.machine()}")
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    try:
        judge()
        say("done", "yes")
    except WrongError as error:
        say("paths", f"WRONG: {error}")
    except Exception as error:
        say("paths", f"WRONG: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
