//! `guest files`.
pub(crate) fn run(_workspace: &std::path::Path) -> std::process::ExitCode {
    std::process::ExitCode::FAILURE
}
