#!/bin/sh
# Slurm: Epilog=/etc/slurm/netprof_epilog.sh: ends the recorder of netprof_prolog.sh, and leaves what it kept.
# Not by SIGINT: what a shell starts with & ignores that until netprof is up.
folder=/var/lib/netprof/slurm
pid=$(cat "$folder/$SLURM_JOB_ID.pid" 2>/dev/null) || exit 0
grep -qs netprof "/proc/$pid/cmdline" && kill -TERM "$pid"
rm -f "$folder/$SLURM_JOB_ID.pid"
exit 0
