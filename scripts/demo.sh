# The main job on real input: lease, command, files, kill, timeline, verification, release, nothing left.
#
# It drives the product as a user would, through its HTTP interface and its commands, and checks every answer: the
# first thing that is not as promised ends it with an error and the service's log.
# shellcheck shell=bash

DEMO_DATA="$SCRATCH/demo"
DEMO_WORK="$SCRATCH/demo-work"
BIN="$LEASEHOLD_ROOT/target/debug"

heading() { printf '\n== %s\n' "$*"; }
show() { printf '   %s\n' "$*"; }
fail() {
  printf '\ndemo: %s\n' "$*" >&2
  if [[ -s $DEMO_WORK/serve.log ]]; then
    printf 'demo: the service said last:\n' >&2
    tail -n 20 -- "$DEMO_WORK/serve.log" >&2
  fi
  exit 1
}

# Compares a fact with what was promised.
expect() { # what, actual, expected
  [[ $2 == "$3" ]] || fail "$1: expected '$3', got '$2'"
}

# One request. The answer's body is left in $DEMO_WORK/body; any other status ends the demo.
api() { # status, method, path, curl arguments...
  local expected=$1 method=$2 path=$3 status
  shift 3
  status=$(curl --silent --show-error --max-time 120 --output "$DEMO_WORK/body" --write-out '%{http_code}' \
    --request "$method" --header "Authorization: Bearer $TOKEN" "$@" "$URL$path") || fail "$method $path: no answer"
  [[ $status == "$expected" ]] || fail "$method $path: status $status instead of $expected: $(head -c 2000 "$DEMO_WORK/body")"
}
field() { jq -r "$1" <"$DEMO_WORK/body"; }
post_json() { # status, path, body, curl arguments...
  local status=$1 path=$2 body=$3
  shift 3
  api "$status" POST "$path" --header 'Content-Type: application/json' --header "Idempotency-Key: $(new_uuid)" --data "$body" "$@"
}
new_uuid() { cat /proc/sys/kernel/random/uuid; }

# Prints a command's output as it is produced; the final Command is left in $DEMO_WORK/body.
follow_output() { # command id
  local line event=""
  : >"$DEMO_WORK/body"
  while IFS= read -r line; do
    line=${line%$'\r'}
    case $line in
    'event: '* | 'event:'*) event=${line#event:} && event=${event# } ;;
    'data:'*)
      line=${line#data:}
      if [[ $event == exit ]]; then
        printf '%s\n' "$line" >"$DEMO_WORK/body"
      elif [[ $event == stdout || $event == stderr ]]; then
        jq -j '.text // (.base64 | @base64d)' <<<"$line"
      fi
      ;;
    esac
  done < <(curl --silent --show-error --no-buffer --max-time 120 --header "Authorization: Bearer $TOKEN" \
    --header 'Accept: text/event-stream' "$URL/v1/commands/$1/output") | sed --unbuffered 's/^/   | /'
  [[ -s $DEMO_WORK/body ]] || fail "the output stream of command $1 ended without its last event"
}

# What an earlier demo left when it was killed: its service, its database server, its directory.
clear_demo() {
  local pid
  pid=$(cat -- "$DEMO_WORK/serve.pid" 2>/dev/null) || pid=""
  if process_is_live "$pid" leasehold; then
    kill -TERM "$pid"
    wait_until 90 process_is_gone "$pid" leasehold || die "the service of an earlier demo (process $pid) does not end"
  fi
  remove_data_dir "$DEMO_DATA"
  rm -rf -- "$DEMO_WORK"
  mkdir -p -- "$DEMO_WORK"
}

start_service() {
  mkfifo "$DEMO_WORK/ready"
  "$BIN/leasehold" serve --dev --json --listen 127.0.0.1:0 --data "$DEMO_DATA" >"$DEMO_WORK/ready" 2>"$DEMO_WORK/serve.log" </dev/null &
  SERVE_PID=$!
  printf '%s\n' "$SERVE_PID" >"$DEMO_WORK/serve.pid"
  trap 'kill -TERM "$SERVE_PID" 2>/dev/null && wait "$SERVE_PID"' EXIT
  # The line, or end-of-file when the service gave up. The descriptor stays open: nobody gets SIGPIPE.
  exec {READY_FD}<"$DEMO_WORK/ready"
  IFS= read -r -t 60 -u "$READY_FD" READY_LINE || fail "the service did not start"
  URL=$(jq -re .url <<<"$READY_LINE") || fail "the start-up line is not as promised: $READY_LINE"
  TOKEN=$(jq -re .token <<<"$READY_LINE") || fail "the start-up line has no token"
}

owned_by_log() { # containers | volumes | networks
  local filter="label=leasehold.log=$LOG_ID"
  case $1 in
  containers) docker ps --all --quiet --filter "$filter" ;;
  volumes) docker volume ls --quiet --filter "$filter" ;;
  networks) docker network ls --quiet --filter "$filter" ;;
  esac
}

demo() {
  local run lease environment command digest code kind left
  clear_demo

  heading "service: one process, its own PostgreSQL, the docker mechanism"
  start_service
  jq '{url, mechanism, image_digest, data_dir}' <<<"$READY_LINE" | sed 's/^/   /'

  heading "lease: the right to run commands, for ten minutes"
  run=$(new_uuid)
  post_json 201 "/v1/runs/$run/leases" '{"ttl_seconds": 600, "holder": "demo"}'
  lease=$(field .lease_id)
  expect "lease state" "$(field .state)" live
  show "run $run"
  show "lease $lease, epoch $(field .epoch), expires $(field .expires_at)"

  heading "workspace: a CSV of this machine's packages and a script, put in through the API"
  # shellcheck disable=SC2016 # dpkg's own placeholders
  { printf 'section,package,installed_kib\n'; dpkg-query --show --showformat '${Section},${Package},${Installed-Size}\n' | grep -E ',[0-9]+$'; } >"$DEMO_WORK/packages.csv"
  api 201 PUT "/v1/leases/$lease/files/packages.csv" --data-binary "@$DEMO_WORK/packages.csv" --header 'Content-Type: application/octet-stream'
  expect "digest of packages.csv" "$(field .sha256)" "$(sha256_of "$DEMO_WORK/packages.csv")"
  show "packages.csv, $(field .size_bytes) bytes, sha256 $(field .sha256)"
  api 201 PUT "/v1/leases/$lease/files/summarise.py" --data-binary "@$LEASEHOLD_ROOT/scripts/demo/summarise.py" --header 'Content-Type: application/octet-stream'
  show "summarise.py, $(field .size_bytes) bytes"

  heading "command: python3 summarise.py in the sandbox, its output as it comes"
  post_json 202 "/v1/leases/$lease/commands" '{"argv": ["python3", "summarise.py"], "wait_seconds": 0}'
  command=$(field .command_id)
  follow_output "$command"
  expect "exit code" "$(field .exit_code)" 0
  expect "reason of a kill" "$(field .killed_by)" null
  show "exit code 0 after $(field .duration_ms) ms, $(field .stdout.bytes_total) bytes of output"

  heading "files changed, seen from outside the sandbox"
  field '.files_changed[] | "\(.change) \(.path) \(.size_bytes) bytes sha256 \(.sha256)"' | sed 's/^/   /'
  expect "files changed" "$(field '[.files_changed[] | .change + " " + .path] | join(", ")')" "CREATED summary.json"
  digest=$(field '.files_changed[0].sha256')

  heading "result: read back and compared"
  api 200 GET "/v1/leases/$lease/files/summary.json"
  expect "digest of the downloaded result" "$(sha256_of "$DEMO_WORK/body")" "$digest"
  expect "packages in the summary" "$(field .packages)" "$(($(wc -l <"$DEMO_WORK/packages.csv") - 1))"
  field '"summary.json: \(.packages) packages in \(.sections | length) sections, the largest: \(.sections[0].section)"' | sed 's/^/   /'
  show "sha256sum of the download is the digest recorded for the command"

  heading "runaway: a loop without end, allowed two seconds"
  post_json 200 "/v1/leases/$lease/commands" '{"argv": ["bash", "-c", "echo started; while :; do :; done"], "timeout_seconds": 2}'
  expect "reason of the kill" "$(field .killed_by)" TIMEOUT
  expect "exit code of a killed command" "$(field .exit_code)" null
  expect "output before the kill" "$(field .stdout.text)" started
  show "killed_by $(field .killed_by), evidence $(field '.evidence | with_entries(select(.value != null)) | tojson'), exit_code null, output kept: $(field .stdout.text)"
  post_json 200 "/v1/leases/$lease/commands" '{"argv": ["sha256sum", "summary.json"]}'
  expect "the workspace after the kill" "$(field .stdout.text)" "$digest  summary.json"
  show "the next command in the same workspace finds the result unharmed"

  heading "command line: a lease for one command, its output and its exit code"
  code=0
  LEASEHOLD_URL=$URL LEASEHOLD_TOKEN=$TOKEN "$BIN/leasehold" run -- bash -c 'id -u; exit 7' \
    >"$DEMO_WORK/run.out" 2>"$DEMO_WORK/run.err" </dev/null || code=$?
  expect "exit code of leasehold run" "$code" 7
  show "leasehold run -- bash -c 'id -u; exit 7' printed uid $(cat "$DEMO_WORK/run.out") and exited with $code"

  heading "what the engine holds for this lease"
  api 200 GET "/v1/leases/$lease"
  environment=$(field .environment.environment_id)
  LOG_ID=$(docker ps --filter "label=leasehold.environment=$environment" --format '{{.Label "leasehold.log"}}' | head -n 1)
  [[ -n $LOG_ID ]] || fail "no container carries the environment's label"
  docker ps --filter "label=leasehold.log=$LOG_ID" --format '{{.Names}} ({{.Status}})' | sed 's/^/   container /'
  docker volume ls --filter "label=leasehold.log=$LOG_ID" --format '{{.Name}}' | sed 's/^/   volume /'

  heading "release: the sandbox and its workspace go, the record stays"
  post_json 200 "/v1/leases/$lease/release" '{}'
  wait_until 60 environment_is_destroyed "$lease" || fail "the environment was not torn down: $(cat "$DEMO_WORK/body")"
  show "lease $(field .state), environment $(field .environment.state)"

  heading "timeline of the run, from the log"
  "$BIN/leasehold-replay" --data "$DEMO_DATA" timeline --run "$run" >"$DEMO_WORK/timeline" || fail "the timeline could not be read"
  sed 's/^/   /' <"$DEMO_WORK/timeline"
  grep -q TIMEOUT "$DEMO_WORK/timeline" || fail "the timeline does not show the kill"

  heading "verification: every leaf and chain recomputed, every view compared with a fresh fold"
  "$BIN/leasehold-replay" --data "$DEMO_DATA" verify >"$DEMO_WORK/verify" || fail "verification failed: $(cat "$DEMO_WORK/verify")"
  sed 's/^/   /' <"$DEMO_WORK/verify"

  heading "end: SIGTERM, and what is left"
  kill -TERM "$SERVE_PID"
  wait "$SERVE_PID" || fail "the service did not end cleanly: exit code $?"
  trap - EXIT
  exec {READY_FD}<&-
  show "the service ended with exit code 0"
  for kind in containers volumes networks; do
    left=$(owned_by_log "$kind")
    expect "$kind left" "$left" ""
    show "$kind of this log left in the engine: 0"
  done
  no_postmaster "$DEMO_DATA" || fail "the embedded PostgreSQL still runs"
  show "PostgreSQL stopped"
  printf '\ndemo: everything as promised.\n'
}

environment_is_destroyed() { # lease id
  api 200 GET "/v1/leases/$1"
  [[ $(field .environment.state) == destroyed ]]
}
