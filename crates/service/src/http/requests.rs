//! What clients send, and the checks that need nothing but the request itself. Ceilings of the operator, and everything that
//! depends on a lease, are checked behind the interface.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use events::bounds::{
    ARGV_COUNT_MAX, LABEL_BYTES_MAX, LABELS_COUNT_MAX, SHORT_TEXT_BYTES_MAX, STDIN_BYTES_MAX, TOOLS_COUNT_MAX,
};
use policy::WorkspaceCwd;
use serde::Deserialize;
use utoipa::ToSchema;

use super::json_body::RequestBody;
use super::problem::FieldError;
use super::text::pointer_token;
use crate::api::{AcquireRequest, CommandRequest, LimitsRequest};

/// Longest life of a lease that is worth asking for; the operator's cap is lower.
const TTL_SECONDS_MAX: f64 = 31_536_000.0;
/// Longest time limit that is worth asking for; the caps that apply are lower.
const TIMEOUT_SECONDS_MAX: f64 = 86_400.0;
/// Longest wait for a command's end.
const WAIT_SECONDS_MAX: f64 = 1_800.0;
/// Wait for a command's end when the request does not say.
const WAIT_DEFAULT: Duration = Duration::from_secs(60);
/// Largest value for the expected output; four times as much is the hard ceiling.
const OUTPUT_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Take a lease.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AcquireBody {
    /// Life from now: 1 to the environment's cap.
    #[schema(minimum = 1, maximum = 31536000, example = 300)]
    ttl_seconds: f64,
    /// Who holds it, at most 256 bytes.
    #[schema(max_length = 256)]
    holder: Option<String>,
    /// Other limits than the operator's defaults, each at most the operator's ceiling.
    limits: Option<LimitsBody>,
    /// Ask for egress.
    network: Option<bool>,
    /// Names of tools that code under the lease may call.
    #[schema(max_items = 64)]
    tools: Option<Vec<String>>,
    /// End a live lease of the run instead of being refused.
    takeover: Option<bool>,
    /// The client's own labels: at most 32, keys and values of at most 128 bytes.
    labels: Option<BTreeMap<String, String>>,
}

/// Any of the six limits.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsBody {
    /// CPU time per second of wall clock, in thousandths of a core.
    #[schema(minimum = 1)]
    cpu_millicores: Option<u64>,
    /// Memory, swap included.
    #[schema(minimum = 1)]
    memory_bytes: Option<u64>,
    /// Processes and threads.
    #[schema(minimum = 1)]
    pids_max: Option<u64>,
    /// Bytes in the workspace.
    #[schema(minimum = 1)]
    workspace_bytes: Option<u64>,
    /// Files, directories and links in the workspace.
    #[schema(minimum = 1)]
    inodes_max: Option<u64>,
    /// Longest time of one command.
    #[schema(minimum = 1)]
    wall_clock_seconds: Option<u64>,
}

impl RequestBody for AcquireBody {
    type Checked = AcquireRequest;

    fn check(self) -> Result<AcquireRequest, Vec<FieldError>> {
        let mut faults = Faults::default();
        let ttl_ms = faults.seconds("/ttl_seconds", self.ttl_seconds, 1.0, TTL_SECONDS_MAX);
        if let Some(holder) = &self.holder {
            faults.short_text("/holder", holder);
        }
        let limits = self.limits.unwrap_or_default();
        for (name, value) in [
            ("cpu_millicores", limits.cpu_millicores),
            ("memory_bytes", limits.memory_bytes),
            ("pids_max", limits.pids_max),
            ("workspace_bytes", limits.workspace_bytes),
            ("inodes_max", limits.inodes_max),
            ("wall_clock_seconds", limits.wall_clock_seconds),
        ] {
            if value == Some(0) {
                faults.add(format!("/limits/{name}"), "must be at least 1");
            }
        }
        let tools = self.tools.unwrap_or_default();
        if tools.len() > TOOLS_COUNT_MAX {
            faults.add("/tools", format!("has more than {TOOLS_COUNT_MAX} names"));
        }
        for (index, tool) in tools.iter().take(TOOLS_COUNT_MAX).enumerate() {
            if tool.is_empty() {
                faults.add(format!("/tools/{index}"), "is empty");
            }
            faults.short_text(format!("/tools/{index}"), tool);
        }
        let labels = self.labels.unwrap_or_default();
        if labels.len() > LABELS_COUNT_MAX {
            faults.add("/labels", format!("has more than {LABELS_COUNT_MAX} entries"));
        }
        for (key, value) in labels.iter().take(LABELS_COUNT_MAX) {
            let bounded = |text: &str| text.len() <= LABEL_BYTES_MAX && !text.contains('\0');
            if key.is_empty() || !bounded(key) || !bounded(value) {
                let detail = format!(
                    "key and value have at most {LABEL_BYTES_MAX} bytes, no NUL, and the key is not empty"
                );
                faults.add(format!("/labels/{}", pointer_token(key)), detail);
            }
        }
        faults.finish(AcquireRequest {
            ttl_ms,
            holder: self.holder,
            limits: LimitsRequest {
                cpu_millicores: limits.cpu_millicores,
                memory_bytes: limits.memory_bytes,
                pids_max: limits.pids_max,
                workspace_bytes: limits.workspace_bytes,
                inodes_max: limits.inodes_max,
                wall_clock_seconds: limits.wall_clock_seconds,
            },
            network: self.network.unwrap_or(false),
            tools,
            takeover: self.takeover.unwrap_or(false),
            labels,
        })
    }
}

/// Move the end of a lease.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RenewBody {
    /// Life from now.
    #[schema(minimum = 1, maximum = 31536000, example = 300)]
    ttl_seconds: f64,
}

impl RequestBody for RenewBody {
    /// Life from now in ms.
    type Checked = u64;

    fn check(self) -> Result<u64, Vec<FieldError>> {
        let mut faults = Faults::default();
        let ttl_ms = faults.seconds("/ttl_seconds", self.ttl_seconds, 1.0, TTL_SECONDS_MAX);
        faults.finish(ttl_ms)
    }
}

/// End a lease by an operator's word.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RevokeBody {
    /// Why, at most 256 bytes.
    #[schema(max_length = 256)]
    reason: Option<String>,
}

impl RequestBody for RevokeBody {
    const OPTIONAL: bool = true;
    type Checked = Option<String>;

    fn check(self) -> Result<Option<String>, Vec<FieldError>> {
        let mut faults = Faults::default();
        if let Some(reason) = &self.reason {
            faults.short_text("/reason", reason);
        }
        faults.finish(self.reason)
    }
}

/// A request whose path says everything.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EmptyBody {}

impl RequestBody for EmptyBody {
    const OPTIONAL: bool = true;
    type Checked = ();

    fn check(self) -> Result<(), Vec<FieldError>> {
        Ok(())
    }
}

/// Execute a command.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandBody {
    /// Program and arguments, given to the program as they are: no shell, no expansion. `argv[0]` is absolute or a bare name.
    #[schema(min_items = 1, max_items = 1024, example = json!(["python3", "-c", "print(1)"]))]
    argv: Vec<String>,
    /// Working directory relative to `/workspace`.
    #[schema(default = ".")]
    cwd: Option<String>,
    /// Variables on top of the built ones; names match `[A-Za-z_][A-Za-z0-9_]*`.
    env: Option<BTreeMap<String, String>>,
    /// Standard input as text. Without it the program reads end of file at once.
    stdin: Option<String>,
    /// Standard input as base64, instead of `stdin`.
    stdin_base64: Option<String>,
    /// Time limit; lowered to the caps that apply.
    #[schema(exclusive_minimum = 0, maximum = 86400)]
    timeout_seconds: Option<f64>,
    /// Expected output of both streams together; past four times as much the command is killed.
    #[schema(minimum = 1, maximum = 1073741824)]
    output_bytes: Option<u64>,
    /// Run beside the foreground command.
    background: Option<bool>,
    /// Wait this long for the end, then answer 202 (default 60; with `background` 0).
    #[schema(minimum = 0, maximum = 1800)]
    wait_seconds: Option<f64>,
}

/// A command and how long to wait for it.
#[derive(Debug)]
pub(super) struct CheckedCommand {
    pub request: CommandRequest,
    pub wait: Duration,
}

impl RequestBody for CommandBody {
    /// Standard input of the largest size in base64, and room for the rest.
    const BYTES_MAX: usize = STDIN_BYTES_MAX / 3 * 4 + 2 * 1024 * 1024;
    type Checked = CheckedCommand;

    fn check(self) -> Result<CheckedCommand, Vec<FieldError>> {
        let mut faults = Faults::default();
        check_argv(&mut faults, &self.argv);
        if let Some(Err(refusal)) = self.cwd.as_deref().map(WorkspaceCwd::try_new) {
            faults.add("/cwd", format!("is not a directory in the workspace: {refusal}"));
        }
        let env = self.env.unwrap_or_default();
        for (name, value) in &env {
            if !is_variable_name(name) {
                let pointer = format!("/env/{}", pointer_token(name));
                faults.add(pointer, "a variable's name must match [A-Za-z_][A-Za-z0-9_]*");
            } else if value.contains('\0') {
                faults.add(format!("/env/{}", pointer_token(name)), "has a NUL character");
            }
        }
        let stdin = match (self.stdin, self.stdin_base64) {
            (Some(_), Some(_)) => {
                faults.add("/stdin_base64", "stdin and stdin_base64 exclude each other");
                None
            }
            (Some(text), None) => Some(text.into_bytes()),
            (None, Some(text)) => match STANDARD.decode(text) {
                Ok(bytes) => Some(bytes),
                Err(_) => {
                    faults.add("/stdin_base64", "is not base64 (RFC 4648, 4, padded)");
                    None
                }
            },
            (None, None) => None,
        };
        let timeout_ms = self
            .timeout_seconds
            .map(|seconds| faults.seconds("/timeout_seconds", seconds, 0.001, TIMEOUT_SECONDS_MAX));
        if self.output_bytes.is_some_and(|bytes| bytes == 0 || bytes > OUTPUT_BYTES_MAX) {
            faults.add("/output_bytes", format!("must be 1 to {OUTPUT_BYTES_MAX}"));
        }
        let background = self.background.unwrap_or(false);
        let wait = match self.wait_seconds {
            Some(seconds) => {
                Duration::from_millis(faults.seconds("/wait_seconds", seconds, 0.0, WAIT_SECONDS_MAX))
            }
            None if background => Duration::ZERO,
            None => WAIT_DEFAULT,
        };
        let request = CommandRequest {
            argv: self.argv,
            cwd: self.cwd,
            env,
            stdin: stdin.map(Into::into),
            timeout_ms,
            output_bytes: self.output_bytes,
            background,
        };
        faults.finish(CheckedCommand { request, wait })
    }
}

fn check_argv(faults: &mut Faults, argv: &[String]) {
    if argv.len() > ARGV_COUNT_MAX {
        faults.add("/argv", format!("has more than {ARGV_COUNT_MAX} arguments"));
        return;
    }
    match argv.first().map(String::as_str) {
        None => faults.add("/argv", "is empty: it needs a program"),
        Some("") => faults.add("/argv/0", "is empty: it needs a program"),
        Some(program) if program.contains('/') && !program.starts_with('/') => faults.add(
            "/argv/0",
            "must be absolute or a bare name; a program in the workspace is /workspace/… or an argument of its interpreter",
        ),
        Some(_) => {}
    }
    for (index, argument) in argv.iter().enumerate() {
        if argument.contains('\0') {
            faults.add(format!("/argv/{index}"), "has a NUL character");
        }
    }
}

/// `[A-Za-z_][A-Za-z0-9_]*`
fn is_variable_name(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    name.bytes().next().is_some_and(letter) && name.bytes().all(|b| letter(b) || b.is_ascii_digit())
}

/// Faults of a request, collected.
#[derive(Debug, Default)]
struct Faults(Vec<FieldError>);

/// Faults that one answer names at most.
const FAULTS_MAX: usize = 100;

impl Faults {
    fn add(&mut self, pointer: impl Into<String>, detail: impl Into<String>) {
        if self.0.len() < FAULTS_MAX {
            self.0.push(FieldError::new(pointer, detail));
        }
    }

    fn short_text(&mut self, pointer: impl Into<String>, text: &str) {
        if text.len() > SHORT_TEXT_BYTES_MAX || text.contains('\0') {
            self.add(pointer, format!("has more than {SHORT_TEXT_BYTES_MAX} bytes or a NUL character"));
        }
    }

    /// A duration in ms, rounded; 0 when it is refused.
    fn seconds(&mut self, pointer: &str, seconds: f64, min: f64, max: f64) -> u64 {
        if (min..=max).contains(&seconds) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "min is not negative, max in ms is far below 2^53"
            )]
            let ms = (seconds * 1000.0).round() as u64;
            ms
        } else {
            self.add(pointer, format!("must be {min} to {max} seconds"));
            0
        }
    }

    fn finish<T>(self, value: T) -> Result<T, Vec<FieldError>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn command(body: Value) -> Result<CheckedCommand, Vec<FieldError>> {
        serde_json::from_value::<CommandBody>(body).unwrap().check()
    }

    fn pointers(faults: Vec<FieldError>) -> Vec<String> {
        faults.into_iter().map(|fault| fault.pointer).collect()
    }

    #[test]
    fn a_plain_command_gets_the_defaults() {
        let checked = command(json!({"argv": ["echo", "two\nlines"]})).unwrap();
        assert_eq!(checked.wait, Duration::from_secs(60));
        assert_eq!(checked.request.argv, ["echo", "two\nlines"]);
        assert_eq!((checked.request.stdin, checked.request.timeout_ms), (None, None));
        assert_eq!(command(json!({"argv": ["a"], "background": true})).unwrap().wait, Duration::ZERO);
        let waits = command(json!({"argv": ["a"], "background": true, "wait_seconds": 0.5})).unwrap().wait;
        assert_eq!(waits, Duration::from_millis(500));
    }

    #[test]
    fn empty_input_is_not_no_input() {
        let empty = command(json!({"argv": ["cat"], "stdin": ""})).unwrap();
        assert_eq!(empty.request.stdin.as_deref(), Some(&b""[..]));
        let raw = command(json!({"argv": ["cat"], "stdin_base64": "/wA="})).unwrap();
        assert_eq!(raw.request.stdin.as_deref(), Some(&b"\xff\0"[..]));
    }

    #[test]
    fn every_fault_is_named_at_once() {
        let faults = command(json!({
            "argv": ["", "a\u{0}b"],
            "cwd": "../x",
            "env": {"A;B": "", "": "x", "1A": "y", "OK": "a=b\n $HOME", "NUL": "\u{0}"},
            "stdin": "a",
            "stdin_base64": "YQ==",
            "timeout_seconds": 0,
            "output_bytes": 0,
            "wait_seconds": 1800.5,
        }));
        assert_eq!(
            pointers(faults.unwrap_err()),
            [
                "/argv/0",
                "/argv/1",
                "/cwd",
                "/env/",
                "/env/1A",
                "/env/A;B",
                "/env/NUL",
                "/stdin_base64",
                "/timeout_seconds",
                "/output_bytes",
                "/wait_seconds"
            ]
        );
    }

    #[test]
    fn programs_that_cannot_be_meant_are_refused() {
        for argv in [json!([]), json!(["./a.out"]), json!(["bin/tool"]), json!(vec!["x"; 1025])] {
            assert!(command(json!({ "argv": argv })).is_err(), "{argv}");
        }
        for argv in [json!(["/workspace/a.out"]), json!(["python3"]), json!(vec!["x"; 1024])] {
            assert!(command(json!({ "argv": argv })).is_ok(), "{argv}");
        }
    }

    #[test]
    fn durations_have_ends() {
        for seconds in [json!(0), json!(-1), json!(1e300), json!(0.0001), json!(86_401)] {
            assert!(command(json!({"argv": ["a"], "timeout_seconds": seconds})).is_err(), "{seconds}");
        }
        let checked = command(json!({"argv": ["a"], "timeout_seconds": 0.05})).unwrap();
        assert_eq!(checked.request.timeout_ms, Some(50));
    }

    #[test]
    fn leases_are_checked_as_a_whole() {
        let acquire = |body: Value| serde_json::from_value::<AcquireBody>(body).unwrap().check();
        let long = "x".repeat(257);
        let faults = acquire(json!({
            "ttl_seconds": 0.5,
            "holder": long,
            "limits": {"memory_bytes": 0, "pids_max": 0},
            "tools": ["", long],
            "labels": {"": "x", "k": "y".repeat(129)},
        }));
        assert_eq!(
            pointers(faults.unwrap_err()),
            [
                "/ttl_seconds",
                "/holder",
                "/limits/memory_bytes",
                "/limits/pids_max",
                "/tools/0",
                "/tools/1",
                "/labels/",
                "/labels/k"
            ]
        );
        let request = acquire(json!({"ttl_seconds": 1.5, "labels": {"k": "v"}})).unwrap();
        assert_eq!((request.ttl_ms, request.takeover, request.network), (1500, false, false));
    }

    #[test]
    fn shapes_are_exact() {
        for body in [
            json!({"ttl_seconds": 60, "unknown": 1}),
            json!({"ttl_seconds": "60"}),
            json!({"ttl_seconds": 60, "limits": {"pids_max": 10.0}}),
            json!({"ttl_seconds": 60, "limits": {"pids_max": -1}}),
            json!({}),
            json!([]),
        ] {
            assert!(serde_json::from_value::<AcquireBody>(body.clone()).is_err(), "{body}");
        }
    }
}
