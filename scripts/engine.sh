# The container engine: use the one that runs; else start it, also where no service manager does and
# after a hard kill.
#
# A dockerd that died by SIGKILL (or with its machine, where /run is on disk) leaves files that stop the next
# one: its pid file (any live process with that number counts as "still running"), the pid file and socket of
# the containerd it managed, and a stale /run/containerd/containerd.sock, which dockerd takes for a system
# containerd and waits for in vain. Such a file is removed only when its owner is proven gone. Shim processes are left
# to the new daemon, which adopts and ends them; only if it does not come up are they killed here.
# shellcheck shell=bash

DOCKERD_LOG="$SCRATCH/dockerd.log"
DOCKERD_PID="$SCRATCH/dockerd.pid"
DOCKERD_START_SECONDS=60

# For this user; and for root, who may always ask.
engine_runs() { docker info >/dev/null 2>&1; }
daemon_answers() { as_root docker info >/dev/null 2>&1; }

pid_file_is_live() { # file, process name
  local pid
  pid=$(as_root cat -- "$1" 2>/dev/null) && process_is_live "$pid" "$2"
}

process_of_name_runs() { # process name
  local pid
  for pid in $(pgrep -x -- "$1"); do
    if process_is_live "$pid" "$1"; then return 0; fi
  done
  return 1
}

remove_stale_engine_files() {
  local file
  # /var/run is /run on Debian; the paths below are the same files by the name dockerd uses.
  if [[ -e /var/run/docker.pid ]] && ! pid_file_is_live /var/run/docker.pid dockerd; then
    as_root rm -f -- /var/run/docker.pid
  fi
  if ! pid_file_is_live /var/run/docker/containerd/containerd.pid containerd; then
    for file in containerd.pid containerd.sock containerd.sock.ttrpc containerd-debug.sock; do
      as_root rm -f -- "/var/run/docker/containerd/$file"
    done
  fi
  if [[ -S /run/containerd/containerd.sock ]] && ! process_of_name_runs containerd; then
    as_root rm -f -- /run/containerd/containerd.sock /run/containerd/containerd.sock.ttrpc
  fi
  if [[ -S /var/run/docker.sock ]] && ! process_of_name_runs dockerd; then
    as_root rm -f -- /var/run/docker.sock
  fi
}

# Shims of a dockerd's own containerd, with the containers below them. Called only while no dockerd is alive.
kill_orphan_shims() {
  local shim child
  for shim in $(pgrep -f -- 'containerd-shim.* -address /(var/)?run/docker/containerd/containerd.sock'); do
    for child in $(pgrep -P "$shim"); do as_root kill -KILL "$child" 2>/dev/null || true; done
    as_root kill -KILL "$shim" 2>/dev/null || true
  done
  # Deepest first: a container's root before the layers below it.
  awk '$2 ~ "^(/var)?/run/docker/(netns|containerd)/|^/var/lib/docker/overlay2/.*/merged$" {print $2}' /proc/self/mounts |
    sort -r | while read -r mounted; do as_root umount -l -- "$mounted" 2>/dev/null || true; done
}

# Starts dockerd in a session of its own, deaf to this shell's end and holding none of its descriptors, so that
# neither a closing terminal nor a caller waiting for end-of-file on a pipe notices it.
spawn_dockerd() { # directories of its PATH
  # shellcheck disable=SC2016 # expanded by the inner shell
  as_root env "PATH=$1" setsid --fork bash -c '
    trap "" HUP
    for fd in /proc/$$/fd/*; do
      fd=${fd##*/}
      if ((fd > 2)); then eval "exec $fd>&-"; fi
    done
    cd /
    # As many open files as a service manager would give it: gVisor holds one for each entry of a tree that it knows.
    ulimit -n "$(cat /proc/sys/fs/nr_open)" 2>/dev/null || true
    echo $$ >"$1"
    exec dockerd >>"$2" 2>&1 </dev/null' leasehold "$DOCKERD_PID" "$DOCKERD_LOG" </dev/null >/dev/null 2>&1
}

dockerd_settled() { daemon_answers || ! pid_file_is_live "$DOCKERD_PID" dockerd; }

# One try: true when the engine answers. A daemon that hangs is ended, so that the next try starts clean.
try_dockerd() { # directories of its PATH
  rm -f -- "$DOCKERD_PID"
  LOG_BYTES_BEFORE=$(stat -c %s -- "$DOCKERD_LOG" 2>/dev/null || echo 0)
  remove_stale_engine_files
  spawn_dockerd "$1"
  wait_until 5 test -s "$DOCKERD_PID" || return 1
  wait_until 5 pid_file_is_live "$DOCKERD_PID" dockerd || return 1
  wait_until "$DOCKERD_START_SECONDS" dockerd_settled || true
  daemon_answers && return 0
  if pid_file_is_live "$DOCKERD_PID" dockerd; then
    as_root kill -TERM "$(<"$DOCKERD_PID")"
    wait_until 15 dockerd_gone || as_root kill -KILL "$(<"$DOCKERD_PID")"
  fi
  return 1
}
dockerd_gone() { ! pid_file_is_live "$DOCKERD_PID" dockerd; }

last_try_said() { tail -c "+$((LOG_BYTES_BEFORE + 1))" -- "$DOCKERD_LOG" | grep -q -- "$1"; }

# A kernel without nf_tables refuses Debian's default iptables: only this daemon gets the legacy one.
legacy_iptables_dir() {
  local dir="$SCRATCH/iptables-legacy" tool
  mkdir -p -- "$dir"
  for tool in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
    ln -sfn -- "/usr/sbin/${tool/tables/tables-legacy}" "$dir/$tool"
  done
  printf '%s\n' "$dir"
}

running_dockerd_settled() { daemon_answers || ! process_of_name_runs dockerd; }

# Makes the daemon answer root; says how.
start_daemon() {
  local path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
  # One that is still starting is waited for, and so is one that is just ending.
  if process_of_name_runs dockerd; then
    wait_until 20 running_dockerd_settled || true
  fi
  if daemon_answers; then
    step_end ok
    return
  fi
  if [[ -d /run/systemd/system ]]; then
    as_root systemctl start docker
    wait_until "$DOCKERD_START_SECONDS" daemon_answers ||
      die "systemctl start docker succeeded, yet the engine does not answer: see journalctl -u docker"
    step_end "started by the service manager"
    return
  fi
  if try_dockerd "$path"; then
    step_end "started"
    return
  fi
  if last_try_said iptables && [[ -x /usr/sbin/iptables-legacy ]] && try_dockerd "$(legacy_iptables_dir):$path"; then
    step_end "started (with legacy iptables)"
    return
  fi
  process_of_name_runs dockerd || kill_orphan_shims
  if try_dockerd "$path"; then
    step_end "started (after ending left-over shims)"
    return
  fi
  step_end failed
  tail -n 15 -- "$DOCKERD_LOG" >&2
  die "dockerd does not start; its last lines are above, all of them in .leasehold/dockerd.log"
}

ensure_engine() {
  step_begin setup "docker engine"
  if engine_runs; then
    step_end ok
    return
  fi
  require_root "starting the docker engine"
  mkdir -p -- "$SCRATCH"
  start_daemon
  engine_runs || die "the engine runs, but this user may not talk to it: usermod -aG docker $(id -un), then log in again"
}
