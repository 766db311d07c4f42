"""What each driver calls what it counts of a port. A new driver is a row of `DRIVERS`.

Names are files of a port's folder in sysfs; where a driver has `hw_counters` of the device only, those are read. From
the drivers' sources: hw/mlx5/counters.c and mad.c, hw/efa/efa_verbs.c, hw/bnxt_re/hw_counters.c, hw/irdma/verbs.c and
sw/rxe/rxe_hw_counters.c of Linux 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from netprof.probes.series import Measure
from netprof.schema import COUNT

WORD_BYTES = 4  # what `counters/port_*_data` count in


def _packets(name: str, meaning: str) -> Measure:
    return Measure(name, "packets", COUNT, meaning)


def _times(name: str, meaning: str) -> Measure:
    return Measure(name, "times", COUNT, meaning)


CNP_RECEIVED = _packets("cnp_received", "congestion notifications that made this port send slower")
CNP_SENT = _packets("cnp_sent", "congestion notifications that this port sent, for what came with a mark of congestion")
ECN_MARKED = _packets("ecn_marked", "received packets that a switch had marked: it was congested")
OUT_OF_SEQUENCE = _packets("out_of_sequence", "packets received out of order: some before them were lost or late")
SEQUENCE_ERRORS = _times("sequence_errors", "times that the receiver asked for lost packets again")
ACK_TIMEOUTS = _times("ack_timeouts", "times that an acknowledgement did not come and packets were sent again")
RESENT = _packets("resent_packets", "packets that were sent again")
NOT_READY = _times("receiver_not_ready", "times that the receiver had no buffer posted")
CREDIT_WAITS = Measure("credit_waits", "ticks", COUNT, "ticks in which data waited for room in the next switch")
DROPPED = _packets("dropped", "packets that the port dropped")
IMPAIRED = _times("impaired_connections", "connections that stopped for want of answers")
LINK_DOWNED = _times("link_downed", "times that the link went down")
PAUSE_RECEIVED = Measure("pause_received", "frames", COUNT, "times that the switch made this port pause")
PAUSE_SENT = Measure("pause_sent", "frames", COUNT, "times that this port made the switch pause")
BYTES_SENT = Measure("bytes_sent", "bytes", COUNT, "bytes that the port sent")
BYTES_RECEIVED = Measure("bytes_received", "bytes", COUNT, "bytes that the port received")
PACKETS_SENT = _packets("packets_sent", "packets that the port sent")
PACKETS_RECEIVED = _packets("packets_received", "packets that the port received")


@dataclass(frozen=True)
class Driver:
    """A driver's names. `sign` is a file that only its ports have. Of a direction all files together are the count.

    Byte counts are in units of `unit_bytes`; without any the driver does not count bytes. `events` are what it reports
    of congestion, loss and packets. The files in `narrow` hold the lower 32 bits of a count.
    """

    name: str
    sign: str
    tx_bytes: tuple[str, ...]
    rx_bytes: tuple[str, ...]
    tx_packets: tuple[str, ...]
    rx_packets: tuple[str, ...]
    events: Mapping[str, Measure]
    unit_bytes: int = 1
    narrow: frozenset[str] = frozenset()

    @property
    def counts_bytes(self) -> bool:
        """Whether it has counters of bytes, both ways; a port of its may lack them."""
        return bool(self.tx_bytes and self.rx_bytes)


_PORT_EVENTS = {
    "counters/port_xmit_wait": CREDIT_WAITS,
    "counters/port_xmit_discards": DROPPED,
    "counters/link_downed": LINK_DOWNED,
}
_MLX5_QUEUES = {
    "hw_counters/out_of_sequence": OUT_OF_SEQUENCE,
    "hw_counters/packet_seq_err": SEQUENCE_ERRORS,
    "hw_counters/local_ack_timeout_err": ACK_TIMEOUTS,
    "hw_counters/roce_adp_retrans": RESENT,
    "hw_counters/out_of_buffer": NOT_READY,
}


def _with_port_counters(
    name: str, sign: str, events: Mapping[str, Measure], narrow: frozenset[str] = frozenset()
) -> Driver:
    """Return a driver whose ports count as InfiniBand's management defines it, 64 bits wide."""
    return Driver(
        name,
        sign,
        tx_bytes=("counters/port_xmit_data",),
        rx_bytes=("counters/port_rcv_data",),
        tx_packets=("counters/port_xmit_packets",),
        rx_packets=("counters/port_rcv_packets",),
        events={**events, **_PORT_EVENTS},
        unit_bytes=WORD_BYTES,
        narrow=narrow,
    )


DRIVERS = (
    _with_port_counters(
        "mlx5",
        "hw_counters/out_of_buffer",
        {
            "hw_counters/rp_cnp_handled": CNP_RECEIVED,
            "hw_counters/np_cnp_sent": CNP_SENT,
            "hw_counters/np_ecn_marked_roce_packets": ECN_MARKED,
            **_MLX5_QUEUES,
        },
        narrow=frozenset(_MLX5_QUEUES),
    ),
    Driver(
        "efa",
        "hw_counters/rx_drops",
        tx_bytes=("hw_counters/tx_bytes",),
        rx_bytes=("hw_counters/rx_bytes",),
        tx_packets=("hw_counters/tx_pkts",),
        rx_packets=("hw_counters/rx_pkts",),
        events={
            "hw_counters/retrans_pkts": RESENT,
            "hw_counters/retrans_timeout_events": ACK_TIMEOUTS,
            "hw_counters/impaired_remote_conn_events": IMPAIRED,
            "hw_counters/rx_drops": DROPPED,
        },
    ),
    Driver(
        "bnxt_re",
        "hw_counters/recoverable_errors",
        tx_bytes=("hw_counters/tx_bytes",),
        rx_bytes=("hw_counters/rx_bytes",),
        tx_packets=("hw_counters/tx_pkts",),
        rx_packets=("hw_counters/rx_pkts",),
        events={
            "hw_counters/rx_cnp_pkts": CNP_RECEIVED,
            "hw_counters/tx_cnp_pkts": CNP_SENT,
            "hw_counters/rx_ecn_marked_pkts": ECN_MARKED,
            "hw_counters/oos_drop_count": OUT_OF_SEQUENCE,
            "hw_counters/seq_err_naks_rcvd": SEQUENCE_ERRORS,
            "hw_counters/to_retransmits": ACK_TIMEOUTS,
            "hw_counters/rx_out_of_buffer": NOT_READY,
            "hw_counters/rx_roce_discards": DROPPED,
        },
    ),
    Driver(
        "irdma",
        "hw_counters/ip4OutOctets",
        tx_bytes=("hw_counters/ip4OutOctets", "hw_counters/ip6OutOctets"),
        rx_bytes=("hw_counters/ip4InOctets", "hw_counters/ip6InOctets"),
        tx_packets=("hw_counters/ip4OutPkts", "hw_counters/ip6OutPkts"),
        rx_packets=("hw_counters/ip4InPkts", "hw_counters/ip6InPkts"),
        events={
            "hw_counters/cnpHandled": CNP_RECEIVED,
            "hw_counters/cnpSent": CNP_SENT,
            "hw_counters/RxECNMrkd": ECN_MARKED,
            "hw_counters/Nak Sequence Error": SEQUENCE_ERRORS,
            "hw_counters/RetransSegs": RESENT,
            "hw_counters/tcpRetransSegs": RESENT,
            "hw_counters/RNR received": NOT_READY,
            "hw_counters/ip4InDiscards": DROPPED,
        },
    ),
    Driver(
        "rxe",
        "hw_counters/sent_pkts",
        (),
        (),
        tx_packets=("hw_counters/sent_pkts",),
        rx_packets=("hw_counters/rcvd_pkts",),
        events={
            "hw_counters/out_of_seq_request": OUT_OF_SEQUENCE,
            "hw_counters/rcvd_seq_err": SEQUENCE_ERRORS,
            "hw_counters/completer_retry_err": ACK_TIMEOUTS,
            "hw_counters/send_rnr_err": NOT_READY,
        },
    ),
    _with_port_counters("InfiniBand", "counters/port_xmit_data", {}),
)
"""The first whose sign a port has is the port's."""
