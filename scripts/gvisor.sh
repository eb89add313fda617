# gVisor: the package `runsc`, and its registration with the container engine.
#
# Debian 12's runsc is too old (`ls -l` fails in it), so there the one package comes from Debian 13, through a source derived from
# the host's own (same mirror, same keyring), pinned so that nothing else can come from it, and removed as soon as the package is
# there: a pin that stayed would stand in the way of the host's own upgrade to that suite. The registration is merged
# into the engine's configuration file, validated, replaced in one step, and taken up by a reload: the engine is never
# restarted. Which arguments runsc needs is found out by running a container of our own image with each set in turn.
#
# The shell's errexit is off in whatever runs in a condition, as most of this does: there each step says itself what its
# failure means. What relies on errexit, the build of the image, is called as a plain statement.
#
# A machine where this cannot work loses the mechanism gvisor and nothing else: every reason is one line, and set-up goes on.
# `./dev clean --host` takes it all back; what it needs to know is kept in HOST_STATE.
# shellcheck shell=bash

RUNSC_MINIMUM="0.0~20240729"
RUNSC_SUITE="trixie"
RUNSC_SOURCE="/etc/apt/sources.list.d/leasehold-runsc.list"
RUNSC_PIN="/etc/apt/preferences.d/leasehold-runsc"
HOST_STATE="/var/lib/leasehold/host"
# Argument sets in the order of preference; the first that runs a container is registered.
RUNSC_ARGUMENTS=('[]' '["--platform=ptrace"]' '["--platform=ptrace","--network=host"]')
RUNSC_TRIAL_SECONDS=60
RUNSC_TRIAL_LATE=124
RUNSC_RELOAD_SECONDS=20

# Ends the step with a reason; the mechanism is not to be had, which is no error here.
without_gvisor() { # reason
  step_end "not available: $1"
  return 1
}

runsc_path() { command -v runsc; }

# What a verdict about this machine depends on.
gvisor_key() {
  printf '%s ' "$(stat -L -c '%s.%Y' -- "$(runsc_path)" 2>/dev/null)" "$(uname -r)" \
    "$(docker version --format '{{.Server.Version}}' 2>/dev/null)"
}
gvisor_verdict() { sed -n "s|^$(gvisor_key)||p" "$SCRATCH/gvisor" 2>/dev/null || true; }
remember_verdict() { # ok, or the reason why not
  mkdir -p -- "$SCRATCH"
  printf '%s%s\n' "$(gvisor_key)" "$1" >"$SCRATCH/gvisor"
}

# What the engine would start for `--runtime=runsc`, as one line; nothing when it knows no such runtime.
registered_runsc() {
  docker info --format '{{json .Runtimes}}' 2>/dev/null | jq -ce '.runsc // empty | [.path, .runtimeArgs // []]'
}

# To be called as a plain statement.
ensure_gvisor() {
  local verdict mechanisms turn
  mechanisms=$(tested_mechanisms)
  step_begin setup "gvisor"
  if [[ $mechanisms == docker ]]; then
    step_end "left out (LEASEHOLD_TEST_MECHANISMS=docker): neither apt nor the engine's configuration is touched for it"
    return
  fi
  verdict=$(gvisor_verdict)
  if [[ -n $verdict && $verdict != ok ]]; then
    without_gvisor "$verdict (./dev clean forgets this verdict)" || return 0
  fi
  if [[ $verdict == ok ]] && registered_runsc >/dev/null; then
    step_end ok
    return
  fi
  # From here on each step shows itself. Two ./dev at once take turns; the second finds everything done.
  step_end "setting up"
  mkdir -p -- "$SCRATCH"
  exec {turn}>"$SCRATCH/gvisor.turn"
  flock "$turn"
  set_up_gvisor
  exec {turn}>&-
}

set_up_gvisor() {
  ensure_runsc_package || return 0
  # The trials run a container of it.
  if ! docker image inspect "$EXECUTION_TAG" >/dev/null 2>&1; then ensure_images ""; fi
  if ensure_runsc_registered; then remember_verdict ok; fi
}

# --- the package ---

version_is_enough() { [[ -n $1 ]] && dpkg --compare-versions "$1" ge "$RUNSC_MINIMUM"; }
# The newest version that apt could install.
newest_runsc() { apt-cache madison runsc 2>/dev/null | awk -F'|' '{gsub(/ /, "", $2); print $2}' | sort -V | tail -n 1; }
# A removed package whose configuration is still there has a version, but is not installed.
# shellcheck disable=SC2016 # dpkg's own placeholders
installed_runsc() { dpkg-query --show --showformat '${db:Status-Status} ${Version}' runsc 2>/dev/null | sed -n 's/^installed //p' || true; }

ensure_runsc_package() {
  local before newest failed=""
  # What a set-up that was killed half-way left behind.
  if [[ -e $RUNSC_SOURCE || -e $RUNSC_PIN ]] && { [[ $EUID -eq 0 ]] || have sudo; }; then remove_runsc_source; fi
  step_begin setup "runsc"
  before=$(installed_runsc)
  if runsc_path >/dev/null; then
    if [[ -n $before ]] && ! version_is_enough "$before"; then
      step_end "$before is too old"
      step_begin setup "newer runsc"
    else
      step_end "ok ($(runsc --version | sed -n 's/^runsc version //p'))"
      return
    fi
  fi
  is_debian_like || without_gvisor "no Debian or Ubuntu: install runsc and register it with the engine" || return
  [[ $EUID -eq 0 ]] || have sudo || without_gvisor "installing runsc needs root" || return
  newest=$(newest_runsc)
  if [[ -z $newest ]]; then
    apt_install update || without_gvisor "apt-get update failed: see .leasehold/apt.log" || return
    newest=$(newest_runsc)
  fi
  if ! version_is_enough "$newest"; then
    add_runsc_source || return
    newest=$(newest_runsc)
    if ! version_is_enough "$newest"; then
      remove_runsc_source
      remember_verdict "the package mirror offers no runsc from $RUNSC_MINIMUM on"
      without_gvisor "$(gvisor_verdict)" || return
    fi
  fi
  # An explicit version: pins of the machine's owner against its suite do not matter to this one package.
  apt_install install --no-install-recommends "runsc=$newest" || failed=yes
  # apt's lists of the source go with its next update.
  remove_runsc_source
  [[ -z $failed ]] || without_gvisor "apt-get could not install runsc: see .leasehold/apt.log" || return
  # A package that was there before us is not ours to remove.
  if [[ -z $before ]]; then
    { as_root mkdir -p -- "$HOST_STATE" && as_root touch -- "$HOST_STATE/runsc-installed"; } ||
      without_gvisor "$HOST_STATE cannot be written" || return
  fi
  hash -r
  version_is_enough "$(installed_runsc)" || without_gvisor "runsc $(installed_runsc) is not from $RUNSC_MINIMUM on" || return
  step_end "installed $newest${before:+ in place of $before, and ./dev clean --host keeps it}"
}

# The host's own mirror of its main archive, one suite later. Debian alone keeps its suites side by side like that.
runsc_source_line() {
  local main
  main=$(host_apt_sources | awk -v suite="$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)" '$(NF-1) == suite && $NF == "main"' | head -n 1)
  [[ -n $main ]] || return 1
  # Only the list of packages, no translations, icons or contents.
  sed -E "s/^deb (\[[^]]*)\]/deb \1 target=Packages arch=$(dpkg --print-architecture)]/; s/ [^ ]+ main\$/ $RUNSC_SUITE main/" <<<"$main"
}

runsc_pin() {
  cat <<PIN
# Made by Leasehold's set-up for the time of one installation: of $RUNSC_SUITE, runsc and nothing else. Remove it if you find it.
Package: *
Pin: release o=Debian,n=$RUNSC_SUITE
Pin-Priority: -1

Package: runsc
Pin: release o=Debian,n=$RUNSC_SUITE
Pin-Priority: 990
PIN
}

add_runsc_source() {
  local line
  [[ $(sed -n 's/^ID=//p' /etc/os-release) == debian ]] ||
    without_gvisor "this distribution offers no runsc from $RUNSC_MINIMUM on" || return
  line=$(runsc_source_line) || without_gvisor "apt knows no source of this distribution" || return
  # The pin first: at no moment may the suite be open.
  if ! { as_root tee -- "$RUNSC_PIN" >/dev/null <<<"$(runsc_pin)" && as_root tee -- "$RUNSC_SOURCE" >/dev/null <<<"$line"; }; then
    remove_runsc_source
    without_gvisor "the package source cannot be written to /etc/apt" || return
  fi
  if ! apt_install update -o "Dir::Etc::sourcelist=$RUNSC_SOURCE" -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0; then
    remove_runsc_source
    without_gvisor "the mirror's suite $RUNSC_SUITE cannot be read: see .leasehold/apt.log" || return
  fi
}

# The source before its pin.
remove_runsc_source() { as_root rm -f -- "$RUNSC_SOURCE" && as_root rm -f -- "$RUNSC_PIN"; }

# --- the registration ---

ensure_runsc_registered() {
  local arguments trial=0 late=""
  step_begin setup "runsc runs containers"
  if registered_runsc >/dev/null; then
    # Somebody's choice: it works, or its owner is told.
    runsc_trial || trial=$?
    if ((trial == 0)); then
      step_end "ok (registered already)"
      return
    fi
    ((trial != RUNSC_TRIAL_LATE)) || runsc_was_late || return
    if [[ ! -e $HOST_STATE/runsc-registered ]]; then
      remember_verdict "runsc is registered with the engine, but starts no container"
      without_gvisor "$(gvisor_verdict)" || return
    fi
  fi
  find_engine_config || return
  for arguments in "${RUNSC_ARGUMENTS[@]}"; do
    register_runsc "$arguments" || return
    trial=0
    runsc_trial || trial=$?
    if ((trial == 0)); then
      step_end "registered $(registered_runsc)"
      return
    fi
    ((trial != RUNSC_TRIAL_LATE)) || late=yes
  done
  unregister_runsc
  [[ -z $late ]] || runsc_was_late || return
  remember_verdict "runsc starts no container on this machine"
  without_gvisor "$(gvisor_verdict)"
}

# A busy machine is slow, which is no verdict on what it can do.
runsc_was_late() {
  without_gvisor "runsc started no container within $RUNSC_TRIAL_SECONDS s; the next set-up tries again (LEASEHOLD_TEST_MECHANISMS=docker: not)"
}

# A container of our own image under runsc lists a directory. RUNSC_TRIAL_LATE when it did not come to an end in time.
runsc_trial() {
  local name="leasehold-runsc-trial-$$" id_file="$SCRATCH/runsc-trial.id" shown status=0
  mkdir -p -- "$SCRATCH"
  rm -f -- "$id_file"
  # A client that waits for its container may outlive the polite signal.
  shown=$(timeout --kill-after=10 "$RUNSC_TRIAL_SECONDS" docker run --rm --name "$name" --cidfile "$id_file" --runtime runsc --pull never --network none \
    --read-only --cap-drop ALL --log-driver none --entrypoint /bin/ls "$EXECUTION_TAG" -l / 2>>"$SCRATCH/runsc-trial.log" </dev/null) || status=$?
  docker rm --force "$name" >/dev/null 2>&1 || true
  if ((status == 0)) && [[ $shown == *" bin"* ]]; then return; fi
  [[ ! -s $id_file ]] || end_runsc_leftovers "$(<"$id_file")"
  # 124: ended by the polite signal; 137: only by the other.
  if ((status == 124 || status == 137)); then return "$RUNSC_TRIAL_LATE"; fi
  return 1
}

# A runsc that fails half-way through its start leaves processes that the engine knows nothing of; its own state knows them.
end_runsc_leftovers() { # container id
  local pid root
  for pid in $(pgrep -f -- "^runsc-sandbox .*$1"); do
    root=$(as_root cat -- "/proc/$pid/cmdline" | tr '\0' '\n' | sed -n 's/^--root=//p')
    [[ -z $root ]] || as_root timeout 20 runsc --root="$root" delete --force "$1" >>"$SCRATCH/runsc-trial.log" 2>&1 || true
  done
  for pid in $(pgrep -f -- "^[^ ]*containerd-shim[^ ]* .*-id $1"); do as_root kill -KILL "$pid" 2>/dev/null || true; done
}

# Sets ENGINE_PID and ENGINE_CONFIG: the daemon on this machine, and the file that it reads again when told to.
find_engine_config() {
  local -a words
  local index
  ENGINE_PID=$(pgrep -x -o dockerd) || without_gvisor "the engine does not run on this machine: register runsc where it does" || return
  mapfile -d '' -t words < <(as_root cat -- "/proc/$ENGINE_PID/cmdline")
  ENGINE_CONFIG=/etc/docker/daemon.json
  for index in "${!words[@]}"; do
    case ${words[index]} in
    --config-file) ENGINE_CONFIG=${words[index + 1]} ;;
    --config-file=*) ENGINE_CONFIG=${words[index]#*=} ;;
    --add-runtime*) without_gvisor "the engine has its runtimes on its command line: add runsc there" || return ;;
    esac
  done
  # What a link leads to is replaced, not the link.
  ENGINE_CONFIG=$(readlink -m -- "$ENGINE_CONFIG")
}

# Replaces the engine's configuration by what a jq program makes of it, in one step, after the engine's own check.
change_engine_config() { # jq arguments...
  local new="$ENGINE_CONFIG.leasehold-new"
  as_root mkdir -p -- "$(dirname -- "$ENGINE_CONFIG")" || return
  write_engine_config "$new" "$@" || {
    as_root rm -f -- "$new"
    return 1
  }
  # Engines before 23 have no such check; the reload then is the first to see the file.
  if dockerd --help 2>/dev/null | grep -q -- --validate && ! as_root dockerd --validate --config-file "$new" >>"$SCRATCH/runsc-trial.log" 2>&1; then
    as_root rm -f -- "$new"
    return 1
  fi
  as_root mv -f -- "$new" "$ENGINE_CONFIG"
}

# The file may hold secrets (a proxy's password): the copy is root's alone until it has its original's owner and mode.
write_engine_config() { # new file, jq arguments...
  local new=$1
  shift
  as_root install -m 600 -- /dev/null "$new" || return
  # An empty file is a valid one and says nothing.
  { if [[ -s $ENGINE_CONFIG ]]; then as_root cat -- "$ENGINE_CONFIG"; else echo '{}'; fi } | jq "$@" | as_root tee -- "$new" >/dev/null || return
  if [[ -e $ENGINE_CONFIG ]]; then
    as_root chown --reference="$ENGINE_CONFIG" -- "$new" && as_root chmod --reference="$ENGINE_CONFIG" -- "$new"
  else
    as_root chmod 644 -- "$new"
  fi
}

reload_engine() {
  if [[ -d /run/systemd/system ]] && systemctl is-active --quiet docker; then
    as_root systemctl reload docker
  else
    as_root kill -HUP "$ENGINE_PID"
  fi
}

runsc_is_registered_as() { [[ $(registered_runsc) == "$1" ]]; }
runsc_is_unregistered() { ! registered_runsc >/dev/null; }

register_runsc() { # arguments as a JSON array
  local path
  path=$(runsc_path)
  # What was there before us is kept once, whatever happens later.
  if [[ ! -e $HOST_STATE/runsc-registered ]]; then
    {
      as_root mkdir -p -- "$HOST_STATE" &&
        { [[ ! -e $ENGINE_CONFIG ]] || as_root cp -p -- "$ENGINE_CONFIG" "$HOST_STATE/daemon.json.before"; } &&
        as_root tee -- "$HOST_STATE/runsc-registered" >/dev/null <<<"$ENGINE_CONFIG"
    } || without_gvisor "$HOST_STATE cannot be written" || return
  fi
  # shellcheck disable=SC2016 # jq's own variables
  change_engine_config --arg path "$path" --argjson arguments "$1" \
    '.runtimes.runsc = {path: $path} + (if $arguments == [] then {} else {runtimeArgs: $arguments} end)' || {
    registered_runsc >/dev/null || as_root rm -f -- "$HOST_STATE/daemon.json.before" "$HOST_STATE/runsc-registered"
    without_gvisor "$ENGINE_CONFIG cannot be extended" || return
  }
  reload_engine
  if ! wait_until "$RUNSC_RELOAD_SECONDS" runsc_is_registered_as "$(jq -cn --arg path "$path" --argjson arguments "$1" '[$path, $arguments]')"; then
    unregister_runsc
    without_gvisor "the engine did not take up $ENGINE_CONFIG at its reload" || return
  fi
}

# Takes our entry out again; a file that then says what it said before us, or nothing where none was, becomes exactly that.
unregister_runsc() {
  local before="$HOST_STATE/daemon.json.before"
  [[ -e $HOST_STATE/runsc-registered ]] || return 0
  ENGINE_CONFIG=$(<"$HOST_STATE/runsc-registered")
  if [[ -e $ENGINE_CONFIG ]]; then
    # A reload takes up only what the file names: the list of runtimes must be there, without ours.
    change_engine_config 'del(.runtimes.runsc)' || return
    if ENGINE_PID=$(pgrep -x -o dockerd); then
      reload_engine
      wait_until "$RUNSC_RELOAD_SECONDS" runsc_is_unregistered || note "gvisor: the engine keeps the runtime runsc until its next start"
    fi
    change_engine_config 'if .runtimes == {} then del(.runtimes) else . end' || return
    if [[ -e $before ]]; then
      # shellcheck disable=SC2016 # jq's own variable
      if as_root jq -e --slurpfile before "$before" '. == ($before[0] // {})' "$ENGINE_CONFIG" >/dev/null; then as_root mv -f -- "$before" "$ENGINE_CONFIG"; fi
    elif as_root jq -e '. == {}' "$ENGINE_CONFIG" >/dev/null; then
      as_root rm -f -- "$ENGINE_CONFIG"
    fi
  fi
  as_root rm -f -- "$before" "$HOST_STATE/runsc-registered"
}

# For `./dev clean --host`, which has checked require_root before it removes anything.
remove_gvisor() {
  step_begin clean "runsc registration"
  unregister_runsc
  step_end removed
  step_begin clean "runsc package"
  # A set-up that was killed half-way left it.
  remove_runsc_source
  if [[ ! -e $HOST_STATE/runsc-installed ]]; then
    step_end "not installed by set-up"
  else
    if [[ -n $(installed_runsc) ]]; then apt_install remove runsc || die "apt-get could not remove runsc: see .leasehold/apt.log"; fi
    step_end removed
  fi
  as_root rm -rf -- "$HOST_STATE"
  rm -f -- "$SCRATCH/gvisor"
}
