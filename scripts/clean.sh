# Takes away what this checkout made: scratch, and what the engine holds for us. The engine, its log and the packages stay.
# shellcheck shell=bash

# A service still running would find its containers gone from under it.
refuse_while_serving() {
  local pid
  for pid in $(pgrep -x leasehold); do
    [[ $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") != *" serve "* ]] || die "leasehold serve runs (process $pid): end it first"
  done
}

# Removes what a listing names; nothing named is fine.
remove_each() { # what, removal command..., then names on standard input
  local what=$1 name count=0
  shift
  step_begin clean "$what"
  while IFS= read -r name; do
    "$@" "$name" >/dev/null || die "could not remove $what $name"
    count=$((count + 1))
  done
  step_end "$count removed"
}

# The tagged ones, and those whose tag a later guest binary took.
our_images() {
  local id
  docker image ls --quiet --filter "reference=$EXECUTION_TAG" --filter "reference=$FILES_TAG"
  for id in $(docker image ls --quiet --filter dangling=true); do
    if docker history --no-trunc --format '{{.CreatedBy}}' "$id" | grep -qx 'leasehold: guest'; then printf '%s\n' "$id"; fi
  done
}

clean() { # --host, or nothing
  [[ -z ${1:-} || $1 == --host ]] || die "./dev clean knows --host, not $1"
  [[ ${1:-} != --host ]] || require_root "./dev clean --host"
  refuse_while_serving
  remove_data_dir "$DEMO_DATA"
  remove_data_dir "$SCRATCH/dev"
  if have docker && engine_runs; then
    docker ps --all --quiet --filter label=leasehold.log | remove_each containers docker rm --force --volumes
    docker volume ls --quiet --filter label=leasehold.log | remove_each volumes docker volume rm --force
    docker network ls --quiet --filter label=leasehold.log | remove_each networks docker network rm
    our_images | sort -u | remove_each images docker image rm --force
  else
    note "clean: the engine does not run, so its containers and images stay"
  fi
  [[ ${1:-} != --host ]] || remove_gvisor
  step_begin clean ".leasehold"
  # The running engine writes its log here.
  as_root find "$SCRATCH" -mindepth 1 -maxdepth 1 ! -name 'dockerd.*' ! -name iptables-legacy -exec rm -rf -- {} + 2>/dev/null || true
  step_end removed
}
