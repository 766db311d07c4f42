"""The groups of `make test-all GROUP=...`: which files of real jobs belong together."""

from __future__ import annotations

GROUPS: dict[str, tuple[str, ...]] = {
    "causes": (
        "test_causes.py", "test_held_up.py", "test_late_collectives.py", "test_loader.py", "test_paths.py",
        "test_stacks.py", "test_stalled.py", "test_stragglers.py", "test_threads.py",
    ),
    "frameworks": (
        "test_asked_profile.py", "test_bounds.py", "test_device_waits.py", "test_dgc_hook.py",
        "test_horovod.py", "test_inference.py", "test_kineto.py", "test_marks_ddp.py",
        "test_mpi.py", "test_nccl.py", "test_nccl_network.py", "test_plain_torch.py", "test_returns.py",
        "test_parallel.py", "test_shapes.py", "test_train.py",
    ),
    "wire": (
        "test_adoption.py", "test_capture.py", "test_flow_bytes.py", "test_flow_times.py", "test_gpu.py",
        "test_line_rate.py", "test_link_history.py", "test_nic.py", "test_odd_packets.py", "test_rdma.py",
        "test_reconciliation.py", "test_slots.py", "test_transport.py", "test_untyped.py",
    ),
    "program": (
        "test_all_day.py", "test_prometheus.py",
        "test_attach.py", "test_containers.py", "test_demo.py", "test_faults.py", "test_harm.py", "test_html.py",
        "test_lab.py", "test_launchers.py", "test_live.py", "test_processes.py", "test_restarts.py", "test_rights.py",
        "test_run.py", "test_secrets.py", "test_systemd.py",
    ),
    "trust": (
        "test_exporter_shares.py", "test_leaks.py", "test_leftovers.py", "test_named_paths.py", "test_races.py",
        "test_silent_mounts.py",
    ),
    "hosts": (
        "test_apart.py", "test_attach_job.py", "test_cluster.py", "test_hosts.py", "test_live_hosts.py",
        "test_recipes.py",
    ),
}  # fmt: skip
