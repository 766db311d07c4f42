"""Links between network namespaces: veth pairs, token buckets, loss. What examples/lab.py builds its hosts from."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

NETNS_DIR = Path("/run/netns")
CONGESTION_CONTROL = "cubic"
"""Linux's own default, whatever this machine's is: BBR, for one, holds each flow back now and then to look at the path.

It is a property of the hosts' routes, since a namespace may only choose what the machine allows everybody.
"""

_LOSS_PROGRAM = """
static unsigned int (*random_u32)(void) = (void *)7; /* bpf_get_prandom_u32 */
__attribute__((section("tc"), used)) int lose(void *packet)
{
    return random_u32() < LOST ? 2 /* TC_ACT_SHOT */ : -1 /* TC_ACT_UNSPEC */;
}
__attribute__((section("license"), used)) char _license[] = "GPL";
"""

_MIRROR_PROGRAM = """
static long (*clone_redirect)(void *, unsigned int, unsigned long) = (void *)13; /* bpf_clone_redirect */
__attribute__((section("tc"), used)) int mirror(void *packet)
{
    clone_redirect(packet, TO, 0);
    return -1 /* TC_ACT_UNSPEC */;
}
__attribute__((section("license"), used)) char _license[] = "GPL";
"""


class LabError(RuntimeError):
    """This machine does not let us build the laboratory."""


def run(*argv: str) -> str:
    """Run a command and return its stdout. Raises LabError with the command's own words."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def add_namespace(netns: str) -> None:
    """Make a namespace with a loopback device that is up. Raises LabError."""
    run("ip", "netns", "add", netns)
    run("ip", "-netns", netns, "link", "set", "lo", "up")


def add_veth(netns: str, device: str, peer_netns: str, peer: str) -> None:
    """Join two namespaces by a pair of devices, both down. Raises LabError."""
    link = ["link", "add", device, "type", "veth", "peer", "name", peer, "netns", peer_netns]
    run("ip", "-netns", netns, *link)


def offloads_off(netns: str, device: str) -> None:
    """Let a device send and receive packets of MTU size only. Raises LabError."""
    features = ["tso", "off", "gso", "off", "gro", "off", "sg", "off", "tx", "off"]
    run("nsenter", f"--net={NETNS_DIR / netns}", "--", "ethtool", "-K", device, *features)


_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_LARGEST_PACKET_BYTES = 65_536


def _bucket_bytes(rate: str) -> int:
    """Return how much a device may send at once: what it sends in a millisecond, 16 kB to 1 MB. Raises LabError.

    A link has no such thing: a bucket that holds a whole message lets it pass as if there were no rate.
    """
    amount, unit = rate[:-4], rate[-4:]
    if unit not in _BITS or not amount.replace(".", "", 1).isdigit():
        raise LabError(f"{rate} is no rate; write 250mbit or 10gbit")
    return min(max(round(float(amount) * _BITS[unit] / 8e3), 16_000), 1_000_000)


def shape(netns: str, device: str, rate: str, latency: str) -> None:
    """Let a device send at `rate` at most, by a token bucket, from now on. Raises LabError.

    The bucket is a new one, and what waited before the old one is dropped: a packet that is larger than a bucket which
    was made smaller would wait there for ever, and all others behind it.
    """
    bucket = ["tbf", "rate", rate, "burst", f"{_bucket_bytes(rate)}b", "latency", latency]
    handle = "2:" if "tbf 1:" in run("tc", "-netns", netns, "qdisc", "show", "dev", device, "root") else "1:"
    run("tc", "-netns", netns, "qdisc", "replace", "dev", device, "root", "handle", handle, *bucket)


def fit_packets(netns: str, device: str, rate: str) -> None:
    """Let TCP make no offloaded packet on `device` that the bucket of a link of `rate` cannot hold. Raises LabError.

    The kernel takes larger ones apart before the bucket, which keeps CPUs busy and the link from being full. A
    sixteenth is left for the headers of each segment, which the bucket counts. Connections look at the device again
    when they look for their route again.
    """
    largest = min(_bucket_bytes(rate) * 15 // 16, _LARGEST_PACKET_BYTES)
    run("ip", "-netns", netns, "link", "set", "dev", device, "gso_max_size", str(largest))
    for version in ("-4", "-6"):
        run("ip", "-netns", netns, version, "route", "flush", "cache")


def lose(netns: str, device: str, percent: float, way: str = "ingress") -> None:
    """Drop a share of the packets that enter `device`, or leave it (`egress`). Raises LabError."""
    _filter(netns, device, (way,), _LOSS_PROGRAM, f"-DLOST={round(percent / 100 * 2**32)}u")


def mirror(netns: str, device: str, to: str) -> None:
    """Send a copy of what enters and what leaves `device` out of another one, before any is lost. Raises LabError."""
    number = run("ip", "-netns", netns, "-o", "link", "show", to).partition(":")[0]
    _filter(netns, device, ("ingress", "egress"), _MIRROR_PROGRAM, f"-DTO={number}", first=True)


def _filter(netns: str, device: str, ways: tuple[str, ...], source: str, define: str, *, first: bool = False) -> None:
    """Let a BPF program see what enters or leaves a device, where it is `first` before those that are there already."""
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "filter.o")
        compiler = ["clang", "-O2", "-target", "bpf", define, "-x", "c", "-c", "-", "-o", program]
        subprocess.run(compiler, input=source, text=True, check=True)
        if "clsact" not in run("tc", "-netns", netns, "qdisc", "show", "dev", device):
            run("tc", "-netns", netns, "qdisc", "add", "dev", device, "clsact")
        for way in ways:
            where = ["filter", "add", "dev", device, way, *(["prio", "1"] if first else [])]
            run("tc", "-netns", netns, *where, "bpf", "direct-action", "object-file", program, "section", "tc")
