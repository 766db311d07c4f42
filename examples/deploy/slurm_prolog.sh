#!/bin/sh
# Slurm: Prolog=/etc/slurm/netprof_prolog.sh (slurm.conf), as root on every node of a job. It starts a recorder that waits
# for the job's ranks, keeps the last ten minutes, and writes metrics for node_exporter. Nothing here fails a job.
folder=/var/lib/netprof/slurm
textfiles=/var/lib/prometheus/node-exporter
netprof=/opt/netprof/bin/netprof
mkdir -p "$textfiles" && (umask 077 && mkdir -p "$folder") || exit 0  # traces hold command lines
set -- exporter --slurm-job "$SLURM_JOB_ID" --keep 10m --out "$folder" --metrics 127.0.0.1:0 --metrics-textfile "$textfiles"
setsid "$netprof" "$@" </dev/null >>"$folder/$SLURM_JOB_ID.log" 2>&1 &
echo $! >"$folder/$SLURM_JOB_ID.pid"
exit 0
