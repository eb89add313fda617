//! What every adapter refuses before anything runs: a handle of another owner or past its end, a command that cannot be
//! started as given.

use events::bounds::{ARGV_BYTES_MAX, ARGV_COUNT_MAX, ARGV_ENV_BYTES_MAX};
use events::time::Timestamp;
use guest::protocol::spawn::MAX_ENV as ENV_COUNT_MAX;
use policy::WorkspacePath;

use crate::ports::{EnvironmentHandle, ExecutionCommand, PortError};

const fn rejected(code: &'static str) -> PortError {
    PortError::Rejected { code }
}

/// The handle names the environment as it was provisioned, and its time has not passed.
///
/// # Errors
/// `wrong_tenant` for any other owner, run or epoch; `expired`.
pub(crate) fn check_handle(
    handle: &EnvironmentHandle,
    owned: &EnvironmentHandle,
    now: Timestamp,
) -> Result<(), PortError> {
    let same_owner = handle.tenant == owned.tenant
        && handle.run_id == owned.run_id
        && handle.epoch == owned.epoch
        && handle.environment_id == owned.environment_id;
    if !same_owner {
        return Err(rejected("wrong_tenant"));
    }
    if now >= owned.expires_at || now >= handle.expires_at {
        return Err(rejected("expired"));
    }
    Ok(())
}

/// Shape and size of argv, working directory and environment.
///
/// # Errors
/// `argv_empty`, `argv_too_large`, `argv_nul`, `argv_relative`, `cwd_invalid`, `env_invalid`, `env_too_large`.
pub(crate) fn check_command(command: &ExecutionCommand) -> Result<(), PortError> {
    let argv = &command.argv;
    let Some(program) = argv.first().filter(|program| !program.is_empty()) else {
        return Err(rejected("argv_empty"));
    };
    if argv.len() > ARGV_COUNT_MAX || argv.iter().map(String::len).sum::<usize>() > ARGV_BYTES_MAX {
        return Err(rejected("argv_too_large"));
    }
    if argv.iter().any(|argument| argument.contains('\0')) {
        return Err(rejected("argv_nul"));
    }
    if program.contains('/') && !program.starts_with('/') {
        return Err(rejected("argv_relative"));
    }
    if command.cwd != "." && WorkspacePath::try_new(command.cwd.as_bytes()).is_err() {
        return Err(rejected("cwd_invalid"));
    }
    let sound = |(name, value): (&String, &String)| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
    };
    if !command.env.iter().all(sound) {
        return Err(rejected("env_invalid"));
    }
    let env_bytes = command.env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    if command.env.len() > ENV_COUNT_MAX || env_bytes > ARGV_ENV_BYTES_MAX {
        return Err(rejected("env_too_large"));
    }
    Ok(())
}
