# Data directories of `leasehold serve --dev`: their database may run on after a kill, and may lie elsewhere where its account
# cannot reach the directory. DATA/postgres.json says where.
# shellcheck shell=bash

cluster_of() { # data directory
  jq -r '.cluster // empty' -- "$1/postgres.json" 2>/dev/null || true
}

# The live server of a data directory; nothing when none runs.
postmaster_of() { # data directory
  local cluster pid
  cluster=$(cluster_of "$1")
  [[ -n $cluster ]] || return 0
  pid=$(as_root head -n 1 -- "$cluster/postmaster.pid" 2>/dev/null) || return 0
  if process_is_live "$pid" postgres; then printf '%s\n' "$pid"; fi
}

no_postmaster() { [[ -z $(postmaster_of "$1") ]]; }

# Stops what runs on a data directory and removes it. Paths read from it are followed only where the service makes them.
remove_data_dir() { # data directory
  local dir=$1 pid cluster socket_dir
  [[ -e $dir ]] || return 0
  pid=$(postmaster_of "$dir")
  if [[ -n $pid ]]; then
    as_root kill -INT "$pid"
    wait_until 60 no_postmaster "$dir" || die "the database server of $dir (process $pid) does not end"
  fi
  cluster=$(cluster_of "$dir")
  if [[ $cluster == /var/lib/leasehold/postgres-*/data ]]; then as_root rm -rf -- "${cluster%/data}"; fi
  socket_dir=$(jq -r '.socket_dir // empty' -- "$dir/postgres.json" 2>/dev/null) || socket_dir=""
  if [[ ${socket_dir##*/} == lh-pg-* ]]; then as_root rm -rf -- "$socket_dir"; fi
  as_root rm -rf -- "$dir"
}
