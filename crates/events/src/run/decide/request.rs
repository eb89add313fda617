//! Bounds of what a client asks for. What is over a bound is refused and never cut (design: security, log).
//!
//! The policy of a path or variable (reserved names, secret-like names) is the service's and comes before; here is what the
//! record itself insists on.

use crate::bounds::{
    ARGV_BYTES_MAX, ARGV_COUNT_MAX, ARGV_ENV_BYTES_MAX, INTEGER_MAX, LABEL_BYTES_MAX, LABELS_COUNT_MAX,
    LEASE_TTL_MS_MIN, PATH_BYTES_MAX, SHORT_TEXT_BYTES_MAX, STDIN_BYTES_MAX, STDIN_INLINE_BYTES_MAX,
    TOOLS_COUNT_MAX, is_sha256_hex, json_text_bytes,
};
use crate::event::command::StdinRecord;
use crate::run::command::{AcceptCommand, AcquireLease};
use crate::run::rejection::Rejection;
use crate::spec::Limits;

const fn invalid(field: &'static str, detail: &'static str) -> Rejection {
    Rejection::Invalid { field, detail }
}

pub(super) fn check_short(field: &'static str, text: &str) -> Result<(), Rejection> {
    if text.len() > SHORT_TEXT_BYTES_MAX {
        return Err(invalid(field, "longer than 256 bytes"));
    }
    Ok(())
}

pub(super) fn check_lease(request: &AcquireLease) -> Result<(), Rejection> {
    if request.ttl_ms < LEASE_TTL_MS_MIN {
        return Err(invalid("/ttl_seconds", "shorter than 1 s"));
    }
    if request.ttl_ms > request.environment_cap_ms {
        return Err(invalid("/ttl_seconds", "longer than an environment may live"));
    }
    if request.environment_cap_ms > INTEGER_MAX {
        return Err(invalid("environment_cap_ms", "not exact as a JSON number"));
    }
    if let Some(holder) = &request.holder {
        check_short("/holder", holder)?;
    }
    check_limits(&request.limits)?;
    if request.tools.len() > TOOLS_COUNT_MAX {
        return Err(invalid("/tools", "more than 64 tools"));
    }
    for tool in &request.tools {
        check_short("/tools", tool)?;
    }
    if request.labels.len() > LABELS_COUNT_MAX {
        return Err(invalid("/labels", "more than 32 labels"));
    }
    if request.labels.iter().any(|(key, value)| key.len().max(value.len()) > LABEL_BYTES_MAX) {
        return Err(invalid("/labels", "a key or value is longer than 128 bytes"));
    }
    Ok(())
}

fn check_limits(limits: &Limits) -> Result<(), Rejection> {
    let fields = [
        ("/limits/cpu_millicores", limits.cpu_millicores),
        ("/limits/memory_bytes", limits.memory_bytes),
        ("/limits/pids_max", limits.pids_max),
        ("/limits/workspace_bytes", limits.workspace_bytes),
        ("/limits/inodes_max", limits.inodes_max),
        ("/limits/wall_clock_seconds", limits.wall_clock_seconds),
    ];
    for (field, value) in fields {
        if value == 0 {
            return Err(invalid(field, "must be at least 1"));
        }
        if value > INTEGER_MAX {
            return Err(invalid(field, "not exact as a JSON number"));
        }
    }
    Ok(())
}

/// 1 to 1,024 arguments without NUL, at most 64 KiB in all. The program is absolute or a bare name found on the image's PATH.
fn check_argv(argv: &[String]) -> Result<(), Rejection> {
    let Some(program) = argv.first() else {
        return Err(invalid("/argv", "empty; the first argument names the program"));
    };
    if argv.len() > ARGV_COUNT_MAX {
        return Err(invalid("/argv", "more than 1024 arguments"));
    }
    if program.is_empty() {
        return Err(invalid("/argv/0", "the program has no name"));
    }
    if argv.iter().any(|argument| argument.contains('\0')) {
        return Err(invalid("/argv", "an argument has a NUL character"));
    }
    if program.contains('/') && !program.starts_with('/') {
        return Err(invalid(
            "/argv/0",
            "a relative path names no program: use an absolute path (/workspace/run.sh), a bare name on PATH, or an \
             interpreter followed by the path",
        ));
    }
    if argv.iter().map(String::len).sum::<usize>() > ARGV_BYTES_MAX {
        return Err(Rejection::TooLarge { field: "/argv", bytes_max: ARGV_BYTES_MAX });
    }
    Ok(())
}

/// What can be said of a request without its run: argv, working directory, variables, input, sizes. [`super::decide`] insists on the
/// same; asking before an environment is made keeps a refused request without any event.
///
/// # Errors
/// The first bound that is broken.
pub fn check_request(request: &AcceptCommand) -> Result<(), Rejection> {
    check_argv(&request.argv)?;
    check_cwd(&request.cwd)?;
    for (name, value) in &request.env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(invalid("/env", "a name is empty or holds = or NUL"));
        }
        if value.contains('\0') {
            return Err(invalid("/env", "a value has a NUL character"));
        }
    }
    let argv_bytes: usize = request.argv.iter().map(|argument| json_text_bytes(argument) + 1).sum();
    let env_bytes: usize =
        request.env.iter().map(|(name, value)| json_text_bytes(name) + json_text_bytes(value) + 2).sum();
    if argv_bytes + env_bytes > ARGV_ENV_BYTES_MAX {
        return Err(Rejection::TooLarge { field: "/argv", bytes_max: ARGV_ENV_BYTES_MAX });
    }
    if let Some(stdin) = &request.stdin {
        check_stdin(stdin)?;
    }
    if request.timeout_ms == 0 {
        return Err(invalid("/timeout_seconds", "must be more than 0"));
    }
    Ok(())
}

/// `.`, or plain components with single slashes between them.
fn check_cwd(cwd: &str) -> Result<(), Rejection> {
    if cwd == "." {
        return Ok(());
    }
    if cwd.len() > PATH_BYTES_MAX {
        return Err(invalid("/cwd", "longer than 4096 bytes"));
    }
    if cwd.contains('\0') {
        return Err(invalid("/cwd", "has a NUL character"));
    }
    if cwd.split('/').any(|component| matches!(component, "" | "." | "..")) {
        return Err(invalid("/cwd", "not a plain path relative to /workspace"));
    }
    Ok(())
}

fn check_stdin(stdin: &StdinRecord) -> Result<(), Rejection> {
    if stdin.bytes > STDIN_BYTES_MAX as u64 {
        return Err(Rejection::TooLarge { field: "/stdin", bytes_max: STDIN_BYTES_MAX });
    }
    if !is_sha256_hex(&stdin.sha256) {
        return Err(invalid("/stdin", "its digest is not 64 lower-case hex digits"));
    }
    if stdin.inline_base64.as_ref().is_some_and(|text| json_text_bytes(text) > STDIN_INLINE_BYTES_MAX) {
        return Err(Rejection::TooLarge { field: "/stdin", bytes_max: STDIN_INLINE_BYTES_MAX });
    }
    Ok(())
}
