"""Links between network namespaces: veth pairs, token buckets, loss. What examples/lab.py builds its hosts from."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

NETNS_DIR = Path("/run/netns")

_LOSS_PROGRAM = """
static unsigned int (*random_u32)(void) = (void *)7; /* bpf_get_prandom_u32 */
__attribute__((section("tc"), used)) int lose(void *packet)
{
    return random_u32() < LOST ? 2 /* TC_ACT_SHOT */ : -1 /* TC_ACT_UNSPEC */;
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


def _burst(rate: str) -> str:
    """Return how much a device may send at once: what it sends in a millisecond, 16 kB to 1 MB. Raises LabError.

    A link has no such thing: a bucket that holds a whole message lets it pass as if there were no rate.
    """
    amount, unit = rate[:-4], rate[-4:]
    if unit not in _BITS or not amount.replace(".", "", 1).isdigit():
        raise LabError(f"{rate} is no rate; write 250mbit or 10gbit")
    return f"{min(max(round(float(amount) * _BITS[unit] / 8e3), 16_000), 1_000_000)}b"


def shape(netns: str, device: str, rate: str, latency: str) -> None:
    """Let a device send at `rate` at most, by a token bucket, from now on. Raises LabError."""
    bucket = ["tbf", "rate", rate, "burst", _burst(rate), "latency", latency]
    run("tc", "-netns", netns, "qdisc", "replace", "dev", device, "root", "handle", "1:", *bucket)


def lose(netns: str, device: str, percent: float) -> None:
    """Drop a share of the packets that enter `device`. Raises LabError."""
    lost = f"-DLOST={round(percent / 100 * 2**32)}u"
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "loss.o")
        compiler = ["clang", "-O2", "-target", "bpf", lost, "-x", "c", "-c", "-", "-o", program]
        subprocess.run(compiler, input=_LOSS_PROGRAM, text=True, check=True)
        run("tc", "-netns", netns, "qdisc", "add", "dev", device, "clsact")
        filters = ["filter", "add", "dev", device, "ingress", "bpf", "direct-action", "object-file", program]
        run("tc", "-netns", netns, *filters, "section", "tc")
