"""A sysfs of RDMA hosts: the files that real ones have, whose values a test moves on as a driver would."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path


def _names(text: str) -> list[str]:
    return text.split()


_MLX5_QUEUES = _names(
    "duplicate_request implied_nak_seq_err local_ack_timeout_err out_of_buffer out_of_sequence packet_seq_err "
    "req_cqe_error req_cqe_flush_error req_remote_access_errors req_remote_invalid_request resp_cqe_error "
    "resp_cqe_flush_error resp_local_length_error resp_remote_access_errors rnr_nak_retry_err roce_adp_retrans "
    "roce_adp_retrans_to roce_slow_restart roce_slow_restart_cnps roce_slow_restart_trans rx_atomic_requests "
    "rx_dct_connect rx_read_requests rx_write_requests"
)
_MLX5_CONGESTION = _names("np_cnp_sent np_ecn_marked_roce_packets rp_cnp_handled rp_cnp_ignored rx_icrc_encapsulated")
_PORT = _names(
    "VL15_dropped excessive_buffer_overrun_errors link_downed link_error_recovery local_link_integrity_errors "
    "multicast_rcv_packets multicast_xmit_packets port_rcv_constraint_errors port_rcv_data port_rcv_errors "
    "port_rcv_packets port_rcv_remote_physical_errors port_rcv_switch_relay_errors port_xmit_constraint_errors "
    "port_xmit_data port_xmit_discards port_xmit_packets port_xmit_wait symbol_error unicast_rcv_packets "
    "unicast_xmit_packets"
)
_EFA = _names(
    "impaired_remote_conn_events rdma_read_bytes rdma_read_resp_bytes rdma_read_wr_err rdma_read_wrs "
    "rdma_write_bytes rdma_write_recv_bytes rdma_write_wr_err rdma_write_wrs recv_bytes recv_wrs retrans_bytes "
    "retrans_pkts retrans_timeout_events rx_bytes rx_drops rx_pkts send_bytes send_wrs tx_bytes tx_pkts "
    "unresponsive_remote_events"
)
_BNXT = _names(
    "active_ahs active_cqs active_mrs active_mws active_pds active_qps active_srqs oos_drop_count recoverable_errors "
    "rx_cnp_pkts rx_bytes rx_ecn_marked_pkts rx_out_of_buffer rx_pkts rx_roce_discards rx_roce_errors "
    "rx_roce_good_bytes rx_roce_good_pkts seq_err_naks_rcvd to_retransmits tx_bytes tx_cnp_pkts tx_pkts"
)
_IRDMA = _names(
    "InRdmaReads InRdmaSends InRdmaWrites OutRdmaReads OutRdmaSends OutRdmaWrites RetransSegs RxECNMrkd cnpHandled "
    "cnpIgnored cnpSent ip4InDiscards ip4InOctets ip4InPkts ip4OutOctets ip4OutPkts ip6InOctets ip6InPkts "
    "ip6OutOctets ip6OutPkts"
)
_RXE = _names(
    "ack_deferred completer_retry_err duplicate_request link_downed lifespan out_of_seq_request rcvd_pkts "
    "rcvd_rnr_err rcvd_seq_err rdma_recvs rdma_sends retry_exceeded_err retry_rnr_exceeded_err send_err "
    "send_rnr_err sent_pkts"
)

HARDWARE = {
    "mlx5": _MLX5_QUEUES + _MLX5_CONGESTION,
    "efa": _EFA,
    "bnxt_re": _BNXT,
    "irdma": _IRDMA,
    "rxe": [name for name in _RXE if name != "lifespan"],
    "InfiniBand": [],
}
"""The names of `hw_counters`, by driver."""
WITH_COUNTERS = ("mlx5", "InfiniBand")


class ScriptedPort:
    """A port of one driver; its counters begin at 0 or `begin_at`."""

    def __init__(
        self, tree: Tree, device: str, driver: str, rate: str, link_layer: str, begin_at: Mapping[str, int]
    ) -> None:
        self.name = f"{device}/1"
        self.uverbs = tree.root / "dev" / "infiniband" / f"uverbs{tree.count}"
        self.folder = tree.root / "class" / "infiniband" / device / "ports" / "1"
        self._device, self._driver, self._about = device, driver, {"rate": rate, "link_layer": link_layer}
        self._values = {f"hw_counters/{name}": 0 for name in HARDWARE[driver]}
        self._values |= {f"counters/{name}": 0 for name in _PORT} if driver in WITH_COUNTERS else {}
        self._values |= begin_at
        verbs = tree.root / "class" / "infiniband_verbs" / self.uverbs.name
        verbs.mkdir(parents=True)
        (verbs / "ibdev").write_text(f"{device}\n")
        self.uverbs.parent.mkdir(parents=True, exist_ok=True)
        self.uverbs.touch()
        self.plug_in()

    def plug_in(self) -> None:
        """Make the port's files, as they were last."""
        for kind in ("hw_counters", "counters"):
            (self.folder / kind).mkdir(parents=True, exist_ok=True)
        for name, text in {"state": "4: ACTIVE", "phys_state": "5: LinkUp", **self._about}.items():
            (self.folder / name).write_text(f"{text}\n")
        if HARDWARE[self._driver]:
            (self.folder / "hw_counters" / "lifespan").write_text("10\n")
        for name, value in self._values.items():
            _put(self.folder / name, value)

    def reload(self) -> None:
        """Take the port away and back."""
        self.pull_out()
        self.come_back()

    def come_back(self) -> None:
        """Bring the port back with its counters at 0, as a driver does that is loaded again."""
        self._values = dict.fromkeys(self._values, 0)
        self.plug_in()

    def pull_out(self) -> None:
        """Take the port away: who has a file of it open can read it no more."""
        for file in self.folder.rglob("*"):
            if file.is_file():
                os.truncate(file, 0)
        shutil.rmtree(self.folder.parent.parent)

    def grow(self, **amounts: int) -> None:
        """Let counters grow; `__` in a name stands for its folder's slash."""
        for name, amount in amounts.items():
            self.set(**{name: self._values[name.replace("__", "/")] + amount})

    def set(self, **values: int) -> None:
        """Let counters hold some values."""
        for name, value in values.items():
            path = name.replace("__", "/")
            self._values[path] = value
            _put(self.folder / path, value)


class Tree:
    """The root of such a sysfs. `root` / dev / infiniband holds files that stand for the devices' own."""

    def __init__(self, root: Path) -> None:
        self.root, self.count = root, 0

    def port(
        self,
        driver: str = "mlx5",
        *,
        rate: str = "400 Gb/sec (4X NDR)",
        link_layer: str = "Ethernet",
        begin_at: Mapping[str, int] | None = None,
    ) -> ScriptedPort:
        """Add a device with one port."""
        made = ScriptedPort(self, f"{driver.lower()}_{self.count}", driver, rate, link_layer, begin_at or {})
        self.count += 1
        return made


def _put(path: Path, value: int) -> None:
    """Write a number in one step, as wide as any, so that no reader sees part of it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, b"%020d\n" % value, 0)
    finally:
        os.close(descriptor)
